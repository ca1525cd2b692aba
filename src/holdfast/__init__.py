"""Holdfast: an AI-agent runtime whose sessions survive kill -9, power loss and full disks."""

# `holdfast --version` imports this module and nothing else, so the names of the types below are not imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from holdfast.library import Holdfast

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def open(
    store: str | None = None, *, home: "Path | str | None" = None, model: str | None = None
) -> "AbstractAsyncContextManager[Holdfast]":
    """Open a store with a worker in this process: `async with holdfast.open() as hf`.

    Without arguments it opens the store of the command line, with its settings. `store` is a
    `sqlite:///…` or `postgresql://…` URL, `home` another home directory, `model` a `provider:name`.
    """
    from holdfast.library import open_library

    return open_library(store, home=home, model=model)
