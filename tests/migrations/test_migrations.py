"""The schema is the result of the migrations; stores of every release open; no upgrade loses a row."""

import asyncio
import gzip
import os
import re
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import apsw
import pytest

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.model.session import summarise
from holdfast.store.repos import log, meta, session_list, sessions
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.store.sqlite.migrate import APPLICATION, Migration, known, migrate
from tests.migrations.make_store import STORES

ROOT = Path(__file__).parents[2]
RELEASED: dict[int, str] = {}
"""The digest of each migration in a release: such a file never changes again.
Add an entry when its release is made."""
NEXT = known()[-1].number + 1
COPY = f"holdfast.db.before-{NEXT:04}"
NEXT_STEP = Migration(
    NEXT, "post_mood", "ALTER TABLE session ADD COLUMN mood TEXT; CREATE INDEX session_mood ON session (mood);"
)
BROKEN_STEP = Migration(
    NEXT, "post_broken", "CREATE TABLE half (x TEXT) STRICT; ALTER TABLE nobody ADD COLUMN mood TEXT;"
)
OPEN = """
import asyncio, sys
from pathlib import Path
from holdfast.store.repos import meta
from holdfast.store.sqlite.driver import open_sqlite

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    database = await open_sqlite(Path(sys.argv[1]))
    print(await database.read(meta.get_store_id), flush=True)
    await database.close()

asyncio.run(main())
"""


def normalised(connection: apsw.Connection) -> set[tuple[str, str, str]]:
    """Everything in the schema, comments and spacing aside."""
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    return {(kind, name, " ".join(re.sub(r"--[^\n]*", "", sql).split())) for kind, name, sql in rows}


def raw(path: Path, sql: str) -> list[tuple]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def contents(path: Path) -> dict[str, bytes]:
    """Every byte of the store, shared memory aside."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


def words(text: str) -> UserSaid:
    return UserSaid(turn_id="turn-1", parts=(Text(text),))


async def make_store(path: Path) -> None:
    """A store with a few rows in it."""
    database = await open_sqlite(path)
    for number in range(5):
        await database.write(sessions.create, f"hf-{number}", SessionOpened(source="chat"), at=number)
        await database.write(log.append_unheld, f"hf-{number}", [words(str(number))], at=number)
    await database.close()


def upgrade(path: Path, *further: Migration) -> int:
    """Migrate the store to a future schema; returns the status before."""
    connection = connect(path)
    try:
        return migrate(connection, path, (*known(), *further)).applied
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home / "holdfast.db"


# the files


def test_the_schema_is_what_the_migrations_make_of_it() -> None:
    migrated, written = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    migrate(migrated, Path("memory"))
    text = (resources.files("holdfast.store") / "migrations" / "schema.sqlite.sql").read_text("utf-8")
    written.execute(text).fetchall()

    assert normalised(written) == normalised(migrated)


def test_migrations_have_distinct_numbers_from_one_and_say_when_they_run() -> None:
    numbers = [migration.number for migration in known()]

    assert numbers[0] == 1 and len(set(numbers)) == len(numbers)
    for migration in known():
        assert re.fullmatch(r"(pre|post)(_[a-z]+)+", migration.name)


def test_a_released_migration_never_changes() -> None:
    found = {migration.number: migration.digest for migration in known()}

    assert {number: found.get(number) for number in RELEASED} == RELEASED


async def test_the_migration_table_has_the_exact_text_that_was_applied(path: Path) -> None:
    await make_store(path)

    assert raw(path, "SELECT number, name, digest FROM migration ORDER BY number") == [
        (migration.number, migration.name, migration.digest) for migration in known()
    ]
    assert raw(path, "PRAGMA application_id") == [(APPLICATION,)]
    assert raw(path, "PRAGMA user_version") == [(known()[-1].number,)]


# opening


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    await make_store(path)

    assert raw(path, "SELECT count(*) FROM session") == [(5,)]


async def test_every_store_has_its_own_id_and_keeps_it(tmp_path: Path) -> None:
    found = []
    for name in ("a.db", "b.db", "a.db"):
        database = await open_sqlite(tmp_path / name)
        found.append(await database.read(meta.get_store_id))
        await database.close()

    assert found[0] == found[2] != found[1]


async def test_opening_a_store_again_changes_nothing_of_its_schema(path: Path) -> None:
    await make_store(path)
    before = raw(path, "SELECT * FROM migration"), raw(path, "SELECT * FROM sqlite_schema")
    for _ in range(3):
        await (await open_sqlite(path)).close()

    assert (raw(path, "SELECT * FROM migration"), raw(path, "SELECT * FROM sqlite_schema")) == before
    assert not list(path.parent.glob("*.before-*"))


async def test_a_store_of_a_newer_release_is_refused_and_not_changed(path: Path) -> None:
    await make_store(path)
    newer = connect(path)
    newer.execute(f"PRAGMA user_version = {known()[-1].number + 7}")
    before = contents(path)

    with pytest.raises(Unsupported, match=rf"newer release \(its schema is {known()[-1].number + 7}"):
        await open_sqlite(path)
    assert contents(path) == before, "not even the content of the WAL is moved"
    newer.close()


@pytest.mark.parametrize("journal", ["delete", "wal"])
async def test_a_database_of_another_program_is_refused_and_not_changed(path: Path, journal: str) -> None:
    raw(path, f"PRAGMA journal_mode = {journal}; CREATE TABLE places (url TEXT); INSERT INTO places VALUES ('x');")
    path.chmod(0o644)
    before = contents(path)

    with pytest.raises(Unsupported, match="of another program; it was left unchanged"):
        await open_sqlite(path)
    assert contents(path).get(path.name) == before[path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert raw(path, "SELECT url FROM places") == [("x",)]
    assert raw(path, "PRAGMA journal_mode") == [(journal,)]


@pytest.mark.parametrize(
    "content", [b"xy", b"just some notes\n" * 1_000, b"\0" * 8_192, b"SQLite format 3\0" + b"\xff" * 9_000]
)
async def test_a_file_that_is_not_a_database_is_reported_as_damaged_and_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(Corrupt, match=re.escape(str(path))):
        await open_sqlite(path)
    assert contents(path).pop(path.name) == content


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
async def test_a_truncated_store_is_reported_as_damaged_and_not_changed(path: Path, share: float) -> None:
    await make_store(path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    os.truncate(path, int(path.stat().st_size * share))
    before = path.read_bytes()

    with pytest.raises(Corrupt, match="left unchanged"):
        await open_sqlite(path)
    assert path.read_bytes() == before


@pytest.mark.process
@pytest.mark.parametrize("attempt", range(3))
def test_processes_that_open_a_new_store_at_once_share_it(tmp_path: Path, attempt: int) -> None:
    path = tmp_path / "not" / "there" / "yet" / "holdfast.db"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate()[0] for child in children]

    assert [child.returncode for child in children] == [0] * len(children)
    assert len(set(said)) == 1, "they all found the same store"


# upgrades


async def test_an_upgrade_keeps_every_row_and_a_copy_of_the_store_before_it(path: Path) -> None:
    await make_store(path)
    before = raw(path, "SELECT session_id, seq, hash, body FROM event ORDER BY position")

    assert upgrade(path, NEXT_STEP) == known()[-1].number
    copy = path.with_name(COPY)
    assert raw(path, "SELECT session_id, seq, hash, body FROM event ORDER BY position") == before
    assert raw(path, "SELECT count(mood), count(*) FROM session") == [(0, 5)]
    assert raw(path, "SELECT number, name FROM migration")[-1] == (NEXT, "post_mood")
    assert raw(copy, "SELECT session_id, seq, hash, body FROM event ORDER BY position") == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert upgrade(path, NEXT_STEP) == NEXT, "the second time there is nothing to do"


async def test_the_copy_is_a_store_that_the_older_release_opens(path: Path) -> None:
    await make_store(path)
    upgrade(path, NEXT_STEP)
    with pytest.raises(Unsupported, match="newer release"):
        await open_sqlite(path)
    database = await open_sqlite(path.with_name(COPY))

    session = await database.read(sessions.get, "hf-3")
    assert len(await database.read(log.read_complete, session)) == 2
    await database.write(log.append_unheld, "hf-3", [words("back again")], at=9)
    await database.close()


async def test_an_upgrade_that_fails_leaves_the_store_as_it_was(path: Path) -> None:
    await make_store(path)
    before = (
        raw(path, "SELECT * FROM sqlite_schema"),
        raw(path, "SELECT * FROM event"),
        raw(path, "SELECT * FROM migration"),
    )

    with pytest.raises(apsw.SQLError):
        upgrade(path, BROKEN_STEP)

    after = (
        raw(path, "SELECT * FROM sqlite_schema"),
        raw(path, "SELECT * FROM event"),
        raw(path, "SELECT * FROM migration"),
    )
    assert after == before
    assert raw(path, "PRAGMA user_version") == [(NEXT - 1,)]
    await (await open_sqlite(path)).close()


async def test_the_copy_is_the_store_just_before_the_upgrade(path: Path) -> None:
    await make_store(path)
    with pytest.raises(apsw.SQLError):
        upgrade(path, BROKEN_STEP)
    database = await open_sqlite(path)
    await database.write(log.append_unheld, "hf-0", [words("said between two attempts")], at=9)
    await database.close()
    upgrade(path, NEXT_STEP)

    copy = path.with_name(COPY)
    assert raw(copy, "SELECT count(*) FROM event") == raw(path, "SELECT count(*) FROM event") == [(11,)]


async def test_an_incomplete_copy_is_never_used(path: Path) -> None:
    await make_store(path)
    path.with_name(f"{COPY}.part").write_bytes(b"half a copy")
    upgrade(path, NEXT_STEP)

    assert raw(path.with_name(COPY), "SELECT count(*) FROM session") == [(5,)]
    assert sorted(file.name for file in path.parent.glob("*.before-*")) == [COPY]


async def test_of_many_concurrent_processes_one_upgrades_and_the_copy_is_from_before(path: Path) -> None:
    await make_store(path)
    outcomes = await asyncio.gather(*(asyncio.to_thread(upgrade, path, NEXT_STEP) for _ in range(6)))

    assert set(outcomes) <= {NEXT - 1, NEXT}
    assert raw(path, f"SELECT count(*) FROM migration WHERE number = {NEXT}") == [(1,)]
    copied = raw(path.with_name(COPY), "SELECT max(number) FROM migration")
    assert copied == [(NEXT - 1,)]


async def test_a_statement_that_yields_rows_does_not_stop_the_rest_of_its_migration(path: Path) -> None:
    await make_store(path)
    chatty = Migration(
        NEXT,
        "post_chatty",
        "SELECT id FROM session; UPDATE session SET model = 'x' RETURNING id; CREATE TABLE late (x TEXT);",
    )
    upgrade(path, chatty)

    assert raw(path, "SELECT name FROM sqlite_schema WHERE name = 'late'") == [("late",)]
    assert raw(path, "SELECT DISTINCT model FROM session") == [("x",)]


async def test_several_migrations_are_applied_at_once_with_one_copy(path: Path) -> None:
    await make_store(path)
    third = Migration(NEXT + 1, "post_late", "CREATE TABLE late (x TEXT) STRICT;")
    upgrade(path, NEXT_STEP, third)

    assert raw(path, "SELECT number FROM migration") == [(one.number,) for one in (*known(), NEXT_STEP, third)]
    assert [file.name for file in path.parent.glob("*.before-*")] == [COPY]


async def test_a_new_store_is_not_copied(path: Path) -> None:
    path.touch()
    upgrade(path, NEXT_STEP)

    assert not list(path.parent.glob("*.before-*"))


# the stores of every release


@pytest.fixture(params=sorted(STORES.glob("*.db.gz")), ids=lambda file: file.name)
def old_store(request: pytest.FixtureRequest, path: Path) -> Path:
    """A copy of a store of some release."""
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    return path


async def test_a_store_of_an_earlier_release_opens_completely_and_can_be_used(old_store: Path) -> None:
    before = raw(old_store, "SELECT id, seq, hash FROM session ORDER BY id")
    database = await open_sqlite(old_store)
    page = await database.read(session_list.list_page, session_list.EVERYTHING, limit=1_000)

    assert sorted((one.id, one.seq, one.hash) for one in page.sessions) == before
    for session in page.sessions:
        entries = await database.read(log.read_complete, session)
        assert len(entries) == session.seq
        assert summarise(entries) == session.summary
        if session.lease_worker is None:
            after = await database.write(log.append_unheld, session.id, [words("going on")], at=9)
            assert len(await database.read(log.read_complete, after)) == session.seq + 1
    await database.close()


def test_a_store_of_an_earlier_release_was_made_by_unchanged_migrations(old_store: Path) -> None:
    """A file that was changed before its release needs `make_store` again; after it, the change must be taken back."""
    ours = {migration.number: migration.digest for migration in known()}
    theirs = dict(raw(old_store, "SELECT number, digest FROM migration"))

    assert theirs == {number: ours[number] for number in theirs}


def test_a_store_of_an_earlier_release_has_events_of_every_kind_it_knew(old_store: Path) -> None:
    assert len(raw(old_store, "SELECT DISTINCT kind FROM event")) >= 27


def test_there_is_a_store_to_open() -> None:
    assert list(STORES.glob("*.db.gz"))
