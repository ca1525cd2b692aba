"""Stores that exist only for a trial: beside the user's own, on the same disk or the same server, and gone afterwards."""

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from holdfast.store.database import Database
from holdfast.store.private import translate

SQLITE = "sqlite:///"
PREFIX = "holdfast-torture-"
Opener = Callable[[str], Awaitable[Database]]
DEFAULT = "holdfast.torture.opening:open_url"


async def open_url(url: str) -> Database:
    """The store at an address, made if it is not there."""
    if url.startswith(SQLITE):
        from holdfast.store.sqlite import open_sqlite

        return await open_sqlite(Path(url.removeprefix(SQLITE)))
    from holdfast.store.postgres import open_postgres

    return await open_postgres(url)


def load(opener: str) -> Opener:
    """What opens stores, by its name, so that programs of other processes can use the same."""
    module, _, name = opener.partition(":")
    found: Opener = getattr(import_module(module), name)
    return found


@dataclass
class Scratch:
    """Makes stores that are removed with it."""

    url: str
    folder: Path
    where: str
    """Where they are, for people."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def new(self, name: str) -> tuple[str, Path]:
        """The address of a store that does not exist yet, and a folder for whatever else a trial writes."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        if self.url.startswith(SQLITE):
            return f"{SQLITE}{folder / 'holdfast.db'}", folder
        from holdfast.store.postgres_scratch import schema

        return self._stack.enter_context(schema(self.url)), folder


@contextmanager
def scratch(url: str) -> Iterator[Scratch]:
    """Room for stores beside the one at the address, which is neither read nor written."""
    beside = _existing(Path(url.removeprefix(SQLITE)).parent) if url.startswith(SQLITE) else None
    if beside is None:
        _see_whether_it_can_be_done(url)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=beside))
    except OSError as e:
        raise translate(e, beside or tempfile.gettempdir()) from e
    if beside is None:
        from holdfast.store.postgres_connection import shown

        where = f"schemas of its own at {shown(url)}"
    else:
        where = str(folder)
    made = Scratch(url, folder, where)
    try:
        with made._stack:
            yield made
    finally:
        shutil.rmtree(folder)


def _existing(folder: Path) -> Path:
    """The folder, or what there is on the way to it."""
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _see_whether_it_can_be_done(url: str) -> None:
    """Raise what keeps us from making schemas in the database, before anybody is told that it was begun."""
    from holdfast.store.postgres_scratch import schema

    with schema(url):
        pass
