"""Temporary stores for trials, on the same disk or server as the user's store. They are removed afterwards."""

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from holdfast.store.atomic_file import translate
from holdfast.store.database import Database

SQLITE = "sqlite:///"
PREFIX = "holdfast-torture-"
Opener = Callable[[str], Awaitable[Database]]
DEFAULT_OPENER = "holdfast.torture.scratch_store:open_url"


async def open_url(url: str) -> Database:
    """Open the store at a URL; create it if it does not exist."""
    if url.startswith(SQLITE):
        from holdfast.store.sqlite.driver import open_sqlite

        return await open_sqlite(Path(url.removeprefix(SQLITE)))
    from holdfast.store.postgres.driver import open_postgres

    return await open_postgres(url)


def load_opener(opener: str) -> Opener:
    """Import an opener by its name (`module:function`), so that programs in other processes can use the same one."""
    module, _, name = opener.partition(":")
    found: Opener = getattr(import_module(module), name)
    return found


@dataclass
class ScratchStores:
    """Creates temporary stores; `scratch_stores` removes them."""

    url: str
    folder: Path
    where: str
    """Their location, as shown to the user."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def new(self, name: str) -> tuple[str, Path]:
        """Return the URL of a store that does not exist yet, and a folder for the trial's other files."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        if self.url.startswith(SQLITE):
            return f"{SQLITE}{folder / 'holdfast.db'}", folder
        from holdfast.store.postgres.temp_schema import temporary_schema

        return self._stack.enter_context(temporary_schema(self.url)), folder


@contextmanager
def scratch_stores(url: str) -> Iterator[ScratchStores]:
    """Create temporary stores next to the one at the URL, which is neither read nor written."""
    parent = _nearest_folder(Path(url.removeprefix(SQLITE)).parent) if url.startswith(SQLITE) else None
    if parent is None:
        _check_schemas(url)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as e:
        raise translate(e, parent or tempfile.gettempdir()) from e
    if parent is None:
        from holdfast.store.postgres.connection import redact_url

        where = f"temporary schemas of {redact_url(url)}"
    else:
        where = str(folder)
    stores = ScratchStores(url, folder, where)
    try:
        with stores._stack:
            yield stores
    finally:
        shutil.rmtree(folder)


def _nearest_folder(folder: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _check_schemas(url: str) -> None:
    """Raise the error that prevents schemas in the database now, before the user reads that the test has started."""
    from holdfast.store.postgres.temp_schema import temporary_schema

    with temporary_schema(url):
        pass
