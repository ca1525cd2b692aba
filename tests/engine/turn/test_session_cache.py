"""The session cache of a worker, measured by the rows of the log that a turn reads."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.engine.turn import session_cache
from holdfast.model.entry import link
from holdfast.model.errors import Corrupt
from holdfast.model.event import Compacted, CompactionUndone, Event, ModelSaid, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.store.repos import log
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.stage import Stage, set_up
from tests.fakes.counting import CountingDatabase

SMALL = 20_000
"""Bytes of memory for all sessions together: a session of some twenty turns is larger."""
LONG = "word " * 1_000


async def rows_of_one_turn(stage: Stage, session_id: str) -> int:
    """How many events of the log were read for one more turn."""
    database = stage.database
    assert isinstance(database, CountingDatabase)
    database.reset()
    await stage.play(session_id, "once more")
    return database.reads.rows["log.list_range"] + database.writes.rows["log.list_range"]


def turns(count: int) -> Iterator[Event]:
    for number in range(count):
        turn_id = f"turn-old-{number}"
        yield TurnStarted(turn_id=turn_id)
        yield UserSaid(turn_id=turn_id, parts=(Text(f"question {number}"),))
        yield ModelSaid(turn_id=turn_id, parts=(Text(f"answer {number}"),))
        yield TurnEnded(turn_id=turn_id, outcome="done")


async def compacted_session(stage: Stage, count: int) -> str:
    """A session of so many turns, of which a summary has replaced all but the last two."""
    session = await stage.session()
    events = [*turns(count)]
    summary = Compacted(epoch=1, upto_seq=1 + len(events) - 8, summary="They talked.", how="summary")
    await stage.database.write(log.append_unheld, session.id, [*events, summary], at=1)
    return session.id


async def evict(stage: Stage) -> None:
    """Make every cached session give way to another one."""
    other = await stage.session()
    await stage.play(other.id, LONG)


def shown_to_model(stage: Stage) -> list[str]:
    return [text_of(message.parts) for message in stage.requests[-1].messages]


def damage(folder: Path, session_id: str, seq: int) -> None:
    connection = apsw.Connection(str(folder / "holdfast.db"))
    connection.execute("UPDATE event SET at = at + 1 WHERE session_id = ? AND seq = ?", (session_id, seq))
    connection.close()


def rewrite(folder: Path, session_id: str, seq: int, count: int) -> None:
    """Change an event and all hashes that follow from it, and cut the log off after `count` events."""
    connection = apsw.Connection(str(folder / "holdfast.db"))
    of = (session_id, seq)
    [(hash_,)] = connection.execute("SELECT hash FROM event WHERE session_id = ? AND seq = ? - 1", of)
    rows = connection.execute("SELECT seq, kind, at + 1, body FROM event WHERE session_id = ? AND seq >= ?", of)
    for place, kind, at, body in rows.fetchall():
        if place > count:
            connection.execute("DELETE FROM event WHERE session_id = ? AND seq = ?", (session_id, place))
            continue
        hash_ = link(hash_, kind, at, body)
        change = "UPDATE event SET at = ?, hash = ? WHERE session_id = ? AND seq = ?"
        connection.execute(change, (at, hash_, session_id, place))
    connection.execute("UPDATE session SET seq = ?, hash = ? WHERE id = ?", (count, hash_, session_id))
    connection.close()


async def counted(tmp_path: Path, stages: list[Stage]) -> Stage:
    database = CountingDatabase(await open_sqlite(tmp_path / "holdfast.db"))
    stages.append(stage := await set_up(tmp_path, model="echo", database=database))  # type: ignore[arg-type]
    return stage


async def test_a_session_larger_than_the_limit_is_not_read_again_for_each_turn(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "MAX_BYTES", SMALL)
    stage = await counted(tmp_path, stages)
    session = await stage.session()
    for _ in range(8):
        await stage.play(session.id, LONG)

    before = await rows_of_one_turn(stage, session.id)
    for _ in range(8):
        await stage.play(session.id, LONG)
    after = await rows_of_one_turn(stage, session.id)

    assert after <= before < 10, "a turn reads what is new, however long the log is"


async def test_least_recently_used_sessions_are_evicted_at_the_limit(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "MAX_BYTES", SMALL)
    stage = await counted(tmp_path, stages)
    old, new = await stage.session(), await stage.session()
    for session in (old, new):
        for _ in range(4):
            await stage.play(session.id, LONG)

    kept = await rows_of_one_turn(stage, new.id)
    evicted = await rows_of_one_turn(stage, old.id)

    assert kept < 10 < evicted


async def test_a_compacted_session_that_made_room_is_not_read_from_its_beginning(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_cache, "MAX_BYTES", 1)
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 500)

    first = await rows_of_one_turn(stage, session_id)
    await evict(stage)
    second = await rows_of_one_turn(stage, session_id)

    assert first > 2_000, "the first turn verifies the whole log"
    assert second < 40
    assert await stage.log(session_id) == [entry.event for entry in await stage.database.read(log.read, session_id)]


async def test_the_model_sees_the_same_after_the_session_made_room(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 20)
    await stage.play(session_id, "one")
    cached = shown_to_model(stage)
    monkeypatch.setattr(session_cache, "MAX_BYTES", 1)
    await evict(stage)

    await stage.play(session_id, "two")

    assert shown_to_model(stage)[: len(cached)] == cached
    assert shown_to_model(stage)[-1] == "two"
    assert "They talked." in cached[0]


async def test_undoing_a_compaction_brings_back_messages_that_memory_no_longer_had(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 20)
    await stage.play(session_id, "one")

    await stage.database.write(log.append_unheld, session_id, [CompactionUndone(epoch=0)], at=1)
    await stage.play(session_id, "two")

    assert shown_to_model(stage)[0] == "question 0"
    assert len(shown_to_model(stage)) == 43


@pytest.mark.parametrize("seq", [1_996, 2_002])
async def test_a_log_that_was_changed_where_it_is_read_again_is_refused_before_anything_is_added(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch, seq: int
) -> None:
    monkeypatch.setattr(session_cache, "MAX_BYTES", 1)
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 500)
    await stage.play(session_id, "one")
    await evict(stage)
    damage(tmp_path, session_id, seq)
    before = len(await stage.database.read(log.read, session_id))

    with pytest.raises(Corrupt, match=f"event {seq}"):
        await stage.admit(session_id, "two")

    assert len(await stage.database.read(log.read, session_id)) == before


@pytest.mark.parametrize(
    ("count", "problem"), [(2_006, "event 2006 was changed"), (2_004, "event 2006 was verified and is missing")]
)
async def test_a_log_that_another_has_replaced_is_refused_before_anything_is_added(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch, count: int, problem: str
) -> None:
    monkeypatch.setattr(session_cache, "MAX_BYTES", 1)
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 500)
    await stage.play(session_id, "one")
    await evict(stage)
    rewrite(tmp_path, session_id, 2_000, count)

    with pytest.raises(Corrupt, match=problem):
        await stage.admit(session_id, "two")

    assert len(await stage.database.read(log.read, session_id)) == count


@pytest.mark.parametrize("seq", [1, 700, 1_400, 2_001])
async def test_a_long_log_that_was_changed_is_refused_before_its_first_turn(
    tmp_path: Path, stages: list[Stage], seq: int
) -> None:
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 500)
    damage(tmp_path, session_id, seq)

    with pytest.raises(Corrupt, match=f"event {seq} "):
        await stage.admit(session_id, "one")


async def test_several_messages_at_once_read_the_log_once(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await counted(tmp_path, stages)
    session_id = await compacted_session(stage, 500)
    database = stage.database
    assert isinstance(database, CountingDatabase)
    database.reset()

    await asyncio.gather(*(stage.admit(session_id, f"word {n}") for n in range(5)))
    await stage.engine.settled()

    assert database.reads.rows["log.list_range"] < 2 * 2_002
