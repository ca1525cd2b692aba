"""Both databases have the same tables, column by column; and a PostgreSQL store is created, refused and upgraded like a SQLite one."""

import asyncio
import re

import apsw
import psycopg
import pytest

from holdfast.model.errors import Invalid, Unavailable, Unsupported
from holdfast.store import queries
from holdfast.store.postgres import migrate as postgres_migrate
from holdfast.store.postgres.connection import Link, connect
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.repos import meta
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.migrate import Migration
from tests.postgres.cluster import cluster, name_of

ONLY_HERE = {"mark", "words", "words_state"}
"""What PostgreSQL alone needs: the outcome of commits, and the search index, which is a file beside a SQLite store."""
NEXT = postgres_migrate.known()[-1].number + 1
MOOD = Migration(
    NEXT, "post_mood", "ALTER TABLE session ADD COLUMN mood TEXT; CREATE INDEX session_mood ON session (mood);"
)
BROKEN = Migration(NEXT, "post_broken", "CREATE TABLE half (x TEXT); ALTER TABLE nobody ADD COLUMN mood TEXT;")


def upgrade(url: str, *further: Migration) -> int:
    with connect(url) as link:
        return postgres_migrate.migrate_store(link, url, (*postgres_migrate.known(), *further)).applied


async def test_both_databases_have_the_same_tables_and_columns_in_the_same_order(
    database: PostgresDatabase, url: str
) -> None:
    sqlite = apsw.Connection(":memory:")
    migrate.migrate(sqlite, "memory")  # type: ignore[arg-type] # only named in errors
    theirs: dict[str, list[tuple[str, bool]]] = {}
    for table, column, kind in sqlite.execute(
        "SELECT t.name, c.name, c.type FROM pragma_table_list t, pragma_table_info(t.name) c "
        "WHERE t.schema = 'main' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid"
    ):
        is_number = {"INTEGER": True, "TEXT": False}[kind]
        theirs.setdefault(table, []).append((column, is_number))
    ours: dict[str, list[tuple[str, bool]]] = {}
    for table, column, kind in cluster().execute(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
        name_of(url),
    ):
        ours.setdefault(str(table), []).append((str(column), {"bigint": True, "text": False}[str(kind)]))

    assert {table: columns for table, columns in ours.items() if table not in ONLY_HERE} == theirs
    assert set(ours) - set(theirs) == ONLY_HERE


async def test_both_databases_have_the_same_indexes(database: PostgresDatabase, url: str) -> None:
    sqlite = apsw.Connection(":memory:")
    migrate.migrate(sqlite, "memory")  # type: ignore[arg-type] # only named in errors
    theirs = {
        row[0] for row in sqlite.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    }
    ours = {
        row[0]
        for row in cluster().execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'", name_of(url))
    }

    assert theirs - ours == set()


async def test_every_text_that_is_compared_is_compared_by_its_bytes(database: PostgresDatabase, url: str) -> None:
    other = cluster().execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
        "AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'",
        name_of(url),
    )

    assert {table for table, _ in other} <= {"migration", "words"}


async def test_every_query_can_be_prepared(database: PostgresDatabase, url: str) -> None:
    """Except those for other files and programs: PRAGMAs, and queries of the search file or of Hermes."""
    elsewhere = {name for name in queries.load() if name.startswith(("hermes.", "search.", "copy_store."))}
    ours = {name for name in queries.load("postgres") if name.startswith("search.")} - set(queries.load())
    with psycopg.connect(url) as link:
        for name in sorted(set(queries.load("postgres")) - elsewhere | ours):
            text = queries.for_psycopg()[name]
            if text.startswith(("BEGIN", "COMMIT", "ROLLBACK", "LISTEN", "CREATE", "DROP", "LOCK")):
                continue
            text = text.format(table="session", condition="true", columns="id") if "{table}" in text else text
            count = len(set(re.findall(r"%\((\w+)\)s", text)))
            numbered: dict[str, str] = {}
            text = re.sub(r"%\((\w+)\)s", lambda m, seen=numbered: seen.setdefault(m[1], f"${len(seen) + 1}"), text)
            link.execute(f"PREPARE q AS {text.replace('%%', '%')}; DEALLOCATE q")
            assert count == len(numbered)


async def test_reopening_changes_nothing_and_every_store_has_its_own_id(url: str) -> None:
    found = []
    for place in (url, cluster().new_database(), url):
        database = await open_postgres(place)
        found.append(await database.read(meta.get_store_id))
        await database.close()

    assert found[0] == found[2] != found[1]
    assert cluster().execute("SELECT number, digest FROM migration ORDER BY number", name_of(url)) == [
        (migration.number, migration.digest) for migration in postgres_migrate.known()
    ]


async def test_a_store_that_another_process_is_creating_is_not_taken_for_a_foreign_database() -> None:
    url = cluster().new_database()

    class Slow:
        """A connection on which another process creates the store between the first query and the second."""

        def __init__(self, link: Link) -> None:
            self._link = link
            self._asked = 0

        def execute(self, query: str) -> object:
            self._asked += 1
            if self._asked == 2:
                assert upgrade(url) == 0
            return self._link.execute(query)

    with connect(url) as link:
        found = postgres_migrate.check(Slow(link), url, postgres_migrate.known())  # type: ignore[arg-type] # stands in

    assert (found.applied, found.pending) == (postgres_migrate.known()[-1].number, 0)


async def test_concurrent_openers_of_a_new_store_share_it() -> None:
    url = cluster().new_database()
    opened = await asyncio.gather(*(open_postgres(url) for _ in range(6)))

    assert len({await database.read(meta.get_store_id) for database in opened}) == 1
    for database in opened:
        await database.close()


async def test_a_database_of_another_program_is_refused_and_not_changed(url: str) -> None:
    cluster().execute("CREATE TABLE migration (version TEXT); CREATE TABLE places (url TEXT)", name_of(url))

    with pytest.raises(Unsupported, match=r"of another program .*left unchanged"):
        await open_postgres(url)
    tables = cluster().execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1", name_of(url))
    assert tables == [("migration",), ("places",)]


async def test_a_store_of_a_newer_release_is_refused(database: PostgresDatabase, url: str) -> None:
    cluster().execute(f"INSERT INTO migration VALUES ({NEXT + 6}, 'post_future', 'x', '9')", name_of(url))

    with pytest.raises(Unsupported, match=rf"newer release \(its schema is {NEXT + 6}"):
        await open_postgres(url)


async def test_a_database_with_another_encoding_is_refused() -> None:
    cluster().execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(Unsupported, match="LATIN1"):
            await open_postgres(cluster().url("latin"))
    finally:
        cluster().execute("DROP DATABASE latin")


async def test_an_upgrade_is_made_once_by_one_of_many_openers(database: PostgresDatabase, url: str) -> None:
    outcomes = await asyncio.gather(*(asyncio.to_thread(upgrade, url, MOOD) for _ in range(6)))

    assert set(outcomes) <= {NEXT - 1, NEXT}
    known = len(postgres_migrate.known())
    assert cluster().execute("SELECT count(*), max(number) FROM migration", name_of(url)) == [(known + 1, NEXT)]
    assert cluster().execute("SELECT count(mood) FROM session", name_of(url)) == [(0,)]


async def test_an_upgrade_that_fails_leaves_the_store_as_it_was(database: PostgresDatabase, url: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        upgrade(url, BROKEN)

    assert cluster().execute("SELECT to_regclass('half'), (SELECT max(number) FROM migration)", name_of(url)) == [
        (None, NEXT - 1)
    ]


async def test_an_unreachable_url_is_named_without_its_password(url: str) -> None:
    with pytest.raises(Unavailable, match=r"cannot reach postgresql://127\.0\.0\.1:1/x") as caught:
        await open_postgres("postgresql://me:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Invalid, match="invalid URL"):
        await open_postgres("postgresql://[broken/x")
    with pytest.raises((Unsupported, Unavailable), match="does not exist"):
        await open_postgres(cluster().url("nosuchdatabase"))
