"""Opens the store that the settings name, and migrates, copies, backs up and restores it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from holdfast.clock import SystemClock
from holdfast.installation import command_to_add
from holdfast.model.errors import Invalid, NotFound, Unsupported
from holdfast.model.ids import Ids
from holdfast.model.times import Clock
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.store.server_clock import open_clock
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import location, migrate
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.supervisor import Supervisor

if TYPE_CHECKING:
    from holdfast.store.backup.backup import BackupFile, BackupProgress
    from holdfast.store.backup.copy_store import CopyReport, StoreEndpoint
    from holdfast.store.backup.restore import RestoreReport
    from holdfast.store.health.sqlite import StoreHealth
    from holdfast.store.repos.workers import Worker
    from holdfast.store.search.index import SearchIndex

STORE_FILE = "holdfast.db"
INDEX_FILE = "search.db"
OWN_FILES = ("config.toml", "api-key")


class App:
    """The settings, store and clock shared by all interfaces. Open it with `open_app`."""

    def __init__(self, settings: Settings, database: Database, clock: Clock, supervisor: Supervisor) -> None:
        self.settings = settings
        self.supervisor = supervisor
        self.database = database
        self.clock = clock
        self.ids = Ids(clock.now)
        self._index: SearchIndex | None = None

    async def search(self) -> "SearchIndex":
        """Return the search index, opened at first use. It may lag behind the store: see its `catch_up`."""
        if self._index is None:
            self._index = await _open_index(self.settings, self.database)
        return self._index

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()
        await self.database.close()


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Open the store and close it on exit."""
    async with Supervisor(SystemClock()) as supervisor:
        database = await open_store(settings, supervisor)
        app = App(settings, database, await open_clock(database), supervisor)
        try:
            yield app
        finally:
            await app.close()


async def open_store(settings: Settings, supervisor: Supervisor) -> Database:
    """Open the configured store; create it or migrate it to this release's schema first."""
    path = settings.store_path
    if path is not None:
        return await open_sqlite(path, supervisor=supervisor)
    _need_psycopg()
    from holdfast.store.postgres.driver import open_postgres

    return await open_postgres(settings.store, supervisor=supervisor)


async def _open_index(settings: Settings, database: Database) -> "SearchIndex":
    if settings.store_path is not None:
        from holdfast.store.search.index import open_index

        return await open_index(index_path(settings), database)
    from holdfast.store.postgres.driver import PostgresDatabase
    from holdfast.store.postgres.search import open_table

    assert isinstance(database, PostgresDatabase), "the open store is the configured one"
    return await open_table(database)


def _need_psycopg() -> None:
    """Raise Unsupported if the PostgreSQL driver is not installed."""
    try:
        import psycopg  # noqa: F401 - only to see whether it is there
    except ImportError as e:
        raise Unsupported(f"the PostgreSQL driver is not installed ({e}); run: {command_to_add('postgres')}") from e


def store_file(settings: Settings) -> Path:
    """Return the file of the store. Raises Unsupported if the store is not a file."""
    path = settings.store_path
    if path is None:
        raise Unsupported("the store is in PostgreSQL, not in a file")
    return path


def index_path(settings: Settings) -> Path:
    """Return the path of the search index: beside its store, separate from those of other stores in the folder."""
    path = store_file(settings)
    return path.with_name(INDEX_FILE if path.name == STORE_FILE else f"{path.stem}-{INDEX_FILE}")


def migrate_store(settings: Settings, *, check: bool) -> tuple[str, migrate.MigrationStatus]:
    """Migrate the store, or only check it; return its location and its schema status before."""
    path = settings.store_path
    if path is None:
        _need_psycopg()
        from holdfast.store.health.postgres import migrate_by_hand

        return migrate_by_hand(settings.store, check=check)
    if check and not path.exists():
        return str(path), migrate.MigrationStatus(0, migrate.known()[-1].number)
    location.prepare(path)
    try:
        migrate.refuse_foreign(path)
        with closing(sqlite_connection.connect(path)) as connection:
            if check:
                return str(path), migrate.check(connection, path, migrate.known())
            return str(path), migrate.migrate(connection, path)
    except apsw.Error as e:
        raise sqlite_connection.translate(e, path) from e


def move_store(
    settings: Settings, url: str, alive: "Callable[[Worker], bool]", on_progress: "BackupProgress"
) -> "CopyReport":
    """Copy the store to another URL and verify the copy. The settings still name the old one."""
    from holdfast.store.backup.copy_store import copy_store

    if url == settings.store:
        raise Invalid("source and target are the same store; name another URL")
    source, target = _endpoint(settings.home, settings.store), _endpoint(settings.home, url)
    if source.location == target.location:
        raise Invalid("source and target are the same store; name another URL")
    if settings.store_path is not None and not settings.store_path.is_file():
        raise NotFound(f"no store at {settings.store_path}; nothing to move")
    return copy_store(source, target, alive, on_progress)


def _endpoint(home: Path, url: str) -> "StoreEndpoint":
    from holdfast.store.backup.endpoints import PostgresEndpoint, SqliteEndpoint

    if url.startswith("sqlite:///"):
        return SqliteEndpoint(home / Path(url.removeprefix("sqlite:///")).expanduser())
    if url.startswith(("postgresql://", "postgres://")):
        _need_psycopg()
        return PostgresEndpoint(url)
    raise Invalid("a store URL must be sqlite:///path or postgresql://user@host/database")


def backup_store(settings: Settings, target: Path, *, replace: bool, on_progress: "BackupProgress") -> "BackupFile":
    """Back up the store to a file while it is in use, and verify the copy. A PostgreSQL store becomes a SQLite file."""
    from holdfast.store.atomic_file import refuse_existing
    from holdfast.store.backup.backup import backup, open_exclusively, remove
    from holdfast.store.backup.copy_store import copy_store
    from holdfast.store.backup.endpoints import SqliteEndpoint

    _refuse_own(settings, target)
    if settings.store_path is not None:
        return backup(settings.store_path, target, replace=replace, on_progress=on_progress)
    refuse_existing(target, replace=replace)
    taken = target.with_name(target.name + ".taking")
    with open_exclusively(taken):
        try:
            copy_store(_endpoint(settings.home, settings.store), SqliteEndpoint(taken), _never_alive, on_progress)
            return backup(taken, target, replace=replace, on_progress=on_progress)
        finally:
            remove(taken)


def _refuse_own(settings: Settings, target: Path) -> None:
    """Raise Invalid for a file that Holdfast itself uses."""
    folder, name = target.absolute().parent.resolve(), target.name
    for own in (settings.store_path or settings.home / STORE_FILE, settings.home / INDEX_FILE):
        if folder == own.parent.resolve() and name in (own.name, f"{own.name}-wal", f"{own.name}-shm"):
            raise Invalid(f"{target} belongs to the store; name another file")
    if folder == settings.home.resolve() and name in OWN_FILES:
        raise Invalid(f"Holdfast uses {target} itself; name another file")


def resolve_store_url(settings: Settings, url: str | None) -> str:
    """Return the full URL of the configured store or of `url`. Raises Invalid for a malformed URL, Unsupported without its driver."""
    url = url or settings.store
    if url.startswith("sqlite:///") and url != "sqlite:///":
        return f"sqlite:///{settings.home / Path(url.removeprefix('sqlite:///')).expanduser()}"
    if url.startswith(("postgresql://", "postgres://")):
        _need_psycopg()
        return url
    raise Invalid("a store URL must be sqlite:///path or postgresql://user@host/database")


def restore_store(
    settings: Settings, file: Path, alive: "Callable[[Worker], bool]", *, replace: bool, on_progress: "BackupProgress"
) -> "RestoreReport":
    """Replace the store with a backup, in SQLite or PostgreSQL."""
    now = SystemClock().now()
    if settings.store_path is not None:
        from holdfast.store.backup.restore import RestoreTarget, restore

        target = RestoreTarget(store=settings.store_path, home=settings.home, replace=replace, alive=alive, at=now)
        return restore(file, target, on_progress)
    from holdfast.store.backup.restore_postgres import PostgresRestoreTarget, restore_to_postgres

    store = _endpoint(settings.home, settings.store)
    elsewhere = PostgresRestoreTarget(store=store, home=settings.home, replace=replace, alive=alive, at=now)
    return restore_to_postgres(file, elsewhere, on_progress)


def _never_alive(worker: "Worker") -> bool:
    return False


def examine_store(settings: Settings) -> "StoreHealth":
    """Examine the store without changing it."""
    if settings.store_path is not None:
        from holdfast.store.health.sqlite import examine

        return examine(settings.store_path)
    _need_psycopg()
    from holdfast.store.health.postgres import examine as examine_postgres

    return examine_postgres(settings.store)
