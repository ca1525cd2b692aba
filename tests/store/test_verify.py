"""Every kind of damage is found, named, and hides nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, TURN, Ids
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log, session_pruning, sessions
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.store.verify import CHUNK, VerifyReport, verify
from tests.cli.seed import turn
from tests.fakes.clock import FakeClock
from tests.store.damage import execute, overwrite, settle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "holdfast.db"


@pytest.fixture
async def made(path: Path, ids: Ids, clock: FakeClock) -> list[str]:
    """Three sessions in a closed store."""
    database = await open_sqlite(path)
    found = [await database.write(fill, ids, clock, f"asked for {word}") for word in ("apples", "pears", "plums")]
    await database.close()
    return found


def fill(tx: Transaction, ids: Ids, clock: FakeClock, text: str, turns: int = 2, *, answer: str = "here") -> str:
    session, _ = sessions.create(tx, ids.make(SESSION), SessionOpened(source="chat"), at=clock.now())
    for _ in range(turns):
        log.append_unheld(tx, session.id, turn(ids.make(TURN), text, answer), at=clock.now())
    return session.id


async def proved(path: Path) -> VerifyReport:
    database = await open_sqlite(path)
    try:
        return await verify(database)
    finally:
        await database.close()


async def test_a_sound_store_has_no_problems(path: Path, made: list[str]) -> None:
    report = await proved(path)

    assert report.ok
    assert (report.sessions, report.events) == (3, 45)


async def test_a_changed_body_is_found_where_it_is(path: Path, made: list[str]) -> None:
    overwrite(path, b"asked for pears", b"asked for peaRs")

    report = await proved(path)

    assert [(one.session_id, one.seq) for one in report.problems] == [(made[1], 3)]
    assert report.sessions == 3, "the others were checked as well"


async def test_bytes_that_are_no_longer_text_are_reported_as_damage(path: Path, made: list[str]) -> None:
    overwrite(path, b"asked for plums", b"asked for \xff\xfe\xff\xfe\xff")

    report = await proved(path)

    assert {one.session_id for one in report.problems} == {made[2]}


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DELETE FROM event WHERE session_id = '{id}' AND seq = 7", "event 7 is missing"),
        (
            "DELETE FROM event WHERE session_id = '{id}' AND seq = 15",
            "its row names 15 as the last event, the last one stored is 14",
        ),
        ("UPDATE event SET at = at + 1 WHERE session_id = '{id}' AND seq = 4", "event 4 was changed"),
        ("UPDATE event SET kind = 'titled' WHERE session_id = '{id}' AND seq = 4", "event 4 was changed"),
        ("UPDATE event SET body = 'Ä' WHERE session_id = '{id}' AND seq = 4", "event 4 was changed"),
        (
            "UPDATE session SET hash = 'x' WHERE id = '{id}'",
            "the hash of its last event differs from the one in its row",
        ),
        ("UPDATE session SET seq = 99 WHERE id = '{id}'", "its row names 99 as the last event"),
        ("UPDATE session SET message_count = 1000 WHERE id = '{id}'", "message_count is 1000, the log says 8"),
        ("UPDATE session SET title = 'mine' WHERE id = '{id}'", "title is 'mine', the log says None"),
    ],
)
async def test_a_changed_row_is_found(path: Path, made: list[str], statement: str, says: str) -> None:
    execute(path, statement.format(id=made[1]))

    report = await proved(path)

    assert [one.session_id for one in report.problems] == [made[1]]
    assert says in report.problems[0].what


async def test_a_chain_rewritten_from_the_middle_is_found_at_its_end(path: Path, made: list[str]) -> None:
    execute(path, f"UPDATE event SET hash = upper(hash) WHERE session_id = '{made[0]}' AND seq = 15")

    report = await proved(path)

    assert report.problems[0].seq == 15


async def test_events_without_a_session_are_found(path: Path, made: list[str]) -> None:
    execute(path, f"DELETE FROM session WHERE id = '{made[0]}'")

    report = await proved(path)

    assert [one.what for one in report.problems] == ["rows of table event refer to missing rows of table session"]


async def test_a_page_of_zeros_is_reported_and_the_rest_is_still_verified(
    path: Path, ids: Ids, clock: FakeClock
) -> None:
    database = await open_sqlite(path)
    for number in range(40):
        await database.write(fill, ids, clock, "hello", answer=f"number {number:03} " + "x" * 900)
    await database.close()
    settle(path)
    content = bytearray(path.read_bytes())
    page = content.index(b"number 020 ") // 4096 * 4096
    content[page : page + 4096] = bytes(4096)
    path.write_bytes(content)

    report = await proved(path)

    assert not report.ok
    assert report.sessions >= 30


class Counting:
    """A database that counts reads."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner
        self.reads = 0

    async def read(self, work, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.reads += 1
        return await self.inner.read(work, *args, **kwargs)


@pytest.fixture
async def long_log(database: Database, ids: Ids, clock: FakeClock) -> AsyncIterator[str]:
    yield await database.write(fill, ids, clock, "hello", 2 * CHUNK // 7 + 1)


async def test_a_long_log_is_verified_in_short_reads(database: Database, long_log: str) -> None:
    counting = Counting(database)
    told: list[tuple[int, int]] = []

    report = await verify(counting, None, lambda done, total: told.append((done, total)))  # type: ignore[arg-type]

    assert report.ok
    assert counting.reads >= 3 + 3
    assert told[-1][0] == told[-1][1] == report.events


async def test_a_session_that_grows_or_is_pruned_meanwhile_is_no_problem(
    database: Database, long_log: str, ids: Ids, clock: FakeClock
) -> None:
    dying = await database.write(fill, ids, clock, "hello", 2 * CHUNK // 7 + 1)
    await database.write(lambda tx: sessions.trash(tx, dying, at=clock.now()))

    class Meddling(Counting):
        async def read(self, work, *args, **kwargs):  # type: ignore[no-untyped-def]
            await database.write(lambda tx: sessions.rename(tx, long_log, f"title {self.reads}", at=clock.now()))
            if self.reads == 7:
                await database.write(lambda tx: session_pruning.prune(tx, dying, before=clock.now() + 1))
            return await super().read(work, *args, **kwargs)

    report = await verify(Meddling(database))  # type: ignore[arg-type]

    assert report.ok, report.problems
