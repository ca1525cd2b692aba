"""The composition root: where settings become a running program. Nothing below knows how the pieces are chosen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from holdfast.clock import SystemClock
from holdfast.model.errors import Unsupported
from holdfast.model.ids import Ids
from holdfast.model.times import Clock
from holdfast.settings import Settings
from holdfast.store import files, migrate, sqlite_connection
from holdfast.store.database import Database
from holdfast.store.sqlite import open_sqlite

if TYPE_CHECKING:
    from holdfast.store.search import SearchIndex

STORE = "holdfast.db"
INDEX = "search.db"


class App:
    """What every face works with. Open it with `open_app`."""

    def __init__(self, settings: Settings, database: Database, clock: Clock) -> None:
        self.settings = settings
        self.database = database
        self.clock = clock
        self.ids = Ids(clock.now)
        self._index: SearchIndex | None = None

    async def search(self) -> "SearchIndex":
        """The search index, opened when first asked for. It may lag behind the store: see its `catch_up`."""
        if self._index is None:
            from holdfast.store.search import open_index

            self._index = await open_index(index_path(self.settings), self.database)
        return self._index

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()
        await self.database.close()


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Everything opened, and closed again at the end."""
    app = App(settings, await open_sqlite(store_file(settings)), SystemClock())
    try:
        yield app
    finally:
        await app.close()


def store_file(settings: Settings) -> Path:
    """The file of the store. Raises Unsupported for one that is not a file."""
    path = settings.store_path
    if path is None:
        raise Unsupported(
            "the store is set to PostgreSQL, which this release cannot open yet; "
            "use sqlite:///path (HOLDFAST_STORE, or store in config.toml)"
        )
    return path


def index_path(settings: Settings) -> Path:
    """Where the search index lies: beside its store, and apart from that of another store in the same folder."""
    path = store_file(settings)
    return path.with_name(INDEX if path.name == STORE else f"{path.stem}-{INDEX}")


def migrate_store(settings: Settings, *, check: bool) -> tuple[Path, migrate.Status]:
    """Where the store lies and where its schema stood; unless it is only checked, it is this release's now."""
    path = store_file(settings)
    if check and not path.exists():
        return path, migrate.Status(0, migrate.known()[-1].number)
    files.prepare(path)
    try:
        migrate.refuse_foreign(path)
        with closing(sqlite_connection.connect(path)) as connection:
            if check:
                return path, migrate.check(connection, path, migrate.known())
            return path, migrate.migrate(connection, path)
    except apsw.Error as e:
        raise sqlite_connection.translate(e, path) from e
