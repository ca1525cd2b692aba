"""The composition root: where settings become a running program. Nothing below knows how the pieces are chosen."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from holdfast.clock import SystemClock
from holdfast.model.errors import Invalid, NotFound, Unsupported
from holdfast.model.ids import Ids
from holdfast.model.times import Clock
from holdfast.settings import Settings
from holdfast.store import files, migrate, sqlite_connection
from holdfast.store.clocks import clock_of
from holdfast.store.database import Database
from holdfast.store.sqlite import open_sqlite

if TYPE_CHECKING:
    from holdfast.store.backup import Copied, Stages
    from holdfast.store.health import Health
    from holdfast.store.move import End, Moved
    from holdfast.store.restore import Restored
    from holdfast.store.search import SearchIndex
    from holdfast.store.workers import Worker

STORE = "holdfast.db"
INDEX = "search.db"
OWN = ("config.toml", "api-key")


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
            self._index = await _open_index(self.settings, self.database)
        return self._index

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()
        await self.database.close()


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Everything opened, and closed again at the end."""
    database = await open_store(settings)
    app = App(settings, database, await clock_of(database))
    try:
        yield app
    finally:
        await app.close()


async def open_store(settings: Settings) -> Database:
    """The store that the settings name, made or brought to this release's schema first."""
    path = settings.store_path
    if path is not None:
        return await open_sqlite(path)
    _need_psycopg()
    from holdfast.store.postgres import open_postgres

    return await open_postgres(settings.store)


async def _open_index(settings: Settings, database: Database) -> "SearchIndex":
    if settings.store_path is not None:
        from holdfast.store.search import open_index

        return await open_index(index_path(settings), database)
    from holdfast.store.postgres import PostgresDatabase
    from holdfast.store.postgres_search import open_table

    assert isinstance(database, PostgresDatabase), "the settings name the store that is open"
    return await open_table(database)


def _need_psycopg() -> None:
    """Raise Unsupported if the driver of PostgreSQL is not installed."""
    try:
        import psycopg  # noqa: F401 - only to see whether it is there
    except ImportError as e:
        raise Unsupported(
            f"the store is set to PostgreSQL, whose driver is not installed ({e}): pip install 'holdfast[postgres]'"
        ) from e


def store_file(settings: Settings) -> Path:
    """The file of the store. Raises Unsupported for one that is not a file."""
    path = settings.store_path
    if path is None:
        raise Unsupported("the store is in PostgreSQL, not in a file")
    return path


def index_path(settings: Settings) -> Path:
    """Where the search index lies: beside its store, and apart from that of another store in the same folder."""
    path = store_file(settings)
    return path.with_name(INDEX if path.name == STORE else f"{path.stem}-{INDEX}")


def migrate_store(settings: Settings, *, check: bool) -> tuple[str, migrate.Status]:
    """Where the store lies and where its schema stood; unless it is only checked, it is this release's now."""
    path = settings.store_path
    if path is None:
        _need_psycopg()
        from holdfast.store.postgres_health import migrate_by_hand

        return migrate_by_hand(settings.store, check=check)
    if check and not path.exists():
        return str(path), migrate.Status(0, migrate.known()[-1].number)
    files.prepare(path)
    try:
        migrate.refuse_foreign(path)
        with closing(sqlite_connection.connect(path)) as connection:
            if check:
                return str(path), migrate.check(connection, path, migrate.known())
            return str(path), migrate.migrate(connection, path)
    except apsw.Error as e:
        raise sqlite_connection.translate(e, path) from e


def move_store(settings: Settings, url: str, alive: "Callable[[Worker], bool]", on_progress: "Stages") -> "Moved":
    """Copy the store to another address, proved before it counts. The settings still name the old one."""
    from holdfast.store.move import move

    if url == settings.store:
        raise Invalid("the store is there already; name another address")
    source, target = _end(settings.home, settings.store), _end(settings.home, url)
    if source.place == target.place:
        raise Invalid("the store is there already; name another address")
    if settings.store_path is not None and not settings.store_path.is_file():
        raise NotFound(f"there is no store at {settings.store_path} yet, so there is nothing to move")
    return move(source, target, alive, on_progress)


def _end(home: Path, url: str) -> "End":
    from holdfast.store.move_ends import PostgresEnd, SqliteEnd

    if url.startswith("sqlite:///"):
        return SqliteEnd(home / Path(url.removeprefix("sqlite:///")).expanduser())
    if url.startswith(("postgresql://", "postgres://")):
        _need_psycopg()
        return PostgresEnd(url)
    raise Invalid("a store is named as sqlite:///path or postgresql://user@host/database")


def backup_store(settings: Settings, target: Path, *, replace: bool, on_progress: "Stages") -> "Copied":
    """Copy the whole store to a file while it is in use, and prove the copy. One in PostgreSQL becomes a SQLite store."""
    from holdfast.store.backup import backup, only_ours, remove
    from holdfast.store.move import move
    from holdfast.store.move_ends import SqliteEnd
    from holdfast.store.private import refuse_existing

    _refuse_own(settings, target)
    if settings.store_path is not None:
        return backup(settings.store_path, target, replace=replace, on_progress=on_progress)
    refuse_existing(target, replace=replace)
    taken = target.with_name(target.name + ".taking")
    with only_ours(taken):
        try:
            move(_end(settings.home, settings.store), SqliteEnd(taken), _nobody, on_progress)
            return backup(taken, target, replace=replace, on_progress=on_progress)
        finally:
            remove(taken)


def _refuse_own(settings: Settings, target: Path) -> None:
    """Raise Invalid for a file that the program itself lives on."""
    folder, name = target.absolute().parent.resolve(), target.name
    for own in (settings.store_path or settings.home / STORE, settings.home / INDEX):
        if folder == own.parent.resolve() and name in (own.name, f"{own.name}-wal", f"{own.name}-shm"):
            raise Invalid(f"{target} belongs to the store; name another file")
    if folder == settings.home.resolve() and name in OWN:
        raise Invalid(f"{target} is a file of the program's own; name another")


def at_home(settings: Settings, url: str | None) -> str:
    """The whole address of a store: the one that is set, or another. Raises Invalid for what is no address, Unsupported without its driver."""
    url = url or settings.store
    if url.startswith("sqlite:///") and url != "sqlite:///":
        return f"sqlite:///{settings.home / Path(url.removeprefix('sqlite:///')).expanduser()}"
    if url.startswith(("postgresql://", "postgres://")):
        _need_psycopg()
        return url
    raise Invalid("a store is named as sqlite:///path or postgresql://user@host/database")


def restore_store(
    settings: Settings, file: Path, alive: "Callable[[Worker], bool]", *, replace: bool, on_progress: "Stages"
) -> "Restored":
    """Make the store what the backup is, wherever it lies."""
    now = SystemClock().now()
    if settings.store_path is not None:
        from holdfast.store.restore import Place, restore

        place = Place(store=settings.store_path, home=settings.home, replace=replace, alive=alive, at=now)
        return restore(file, place, on_progress)
    from holdfast.store.restore_elsewhere import Elsewhere, restore_elsewhere

    store = _end(settings.home, settings.store)
    elsewhere = Elsewhere(store=store, home=settings.home, replace=replace, alive=alive, at=now)
    return restore_elsewhere(file, elsewhere, on_progress)


def _nobody(worker: "Worker") -> bool:
    return False


def examine_store(settings: Settings) -> "Health":
    """What can be said about the store, without changing it."""
    if settings.store_path is not None:
        from holdfast.store.health import examine

        return examine(settings.store_path)
    _need_psycopg()
    from holdfast.store.postgres_health import examine as examine_postgres

    return examine_postgres(settings.store)
