"""Holdfast: an AI-agent runtime whose sessions survive anything."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.library import Holdfast

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def open(
    store: str | None = None, *, home: Path | str | None = None, model: str | None = None
) -> AbstractAsyncContextManager["Holdfast"]:
    """Open a store and work in it: `async with holdfast.open() as hf`.

    Without arguments this is the store of the command line, with its settings. `store` is a
    `sqlite:///…` or `postgresql://…` URL, `home` another home folder, `model` a `provider:name`.
    """
    from holdfast.library import open_library

    return open_library(store, home=home, model=model)
