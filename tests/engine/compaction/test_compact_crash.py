"""Die around every commit of a turn that has to compact first, then let another worker continue it."""

import asyncio
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.model.event import Compacted, Event, ModelCalled, ModelSaid, TurnEnded, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.store.repos import log, summary_chunks, workers
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.counting_model import Reader, dangling, tokens
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase

WINDOW = 2_000
COMMITS = 15
"""Admission, a few chunks of the summary, each after the record of its call, the compaction, the reply with the end of the turn: counted by the test below."""


def compacting(reader: Reader) -> CompactionSettings:
    """With a small window for the author, so that there are several chunks."""
    kit = reader.compacting()
    return msgspec.structs.replace(kit, author=msgspec.structs.replace(kit.author, window_of=lambda model: 1_100))


async def prepared(folder: Path, reader: Reader) -> tuple[Stage, str]:
    stage = await set_up(folder, ask=reader.ask, compacting=compacting(reader))
    session = await stage.session()
    words: list[Event] = []
    for number in range(60):
        words.append(UserSaid(turn_id=f"turn-{number}", parts=(Text(f"Turn {number}: " + "garden and rain " * 8),)))
        words.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text(f"Noted {number}."),)))
    await stage.database.write(log.append_unheld, session.id, words, at=1)
    return stage, session.id


async def crashed(folder: Path, reader: Reader, nth: int, when: Literal["before", "after"]) -> tuple[str, str, bool]:
    """Send a message and die at the nth commit; returns the session, the worker, and whether it died."""
    stage, session_id = await prepared(folder, reader)
    dying = CrashingDatabase(stage.database, nth, when)
    object.__setattr__(stage.engine.services, "database", dying)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    try:
        async with asyncio.timeout(20):
            await stage.play(session_id, "Where were we?")
    except Crash:
        pass
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await stage.database.close()
    return session_id, stage.worker_id, dying.dead


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
async def test_promise_18_a_crash_at_any_commit_of_a_compaction_repeats_no_chunk(
    tmp_path: Path, nth: int, when: Literal["before", "after"]
) -> None:
    reader = Reader(WINDOW)
    session_id, dead, died = await crashed(tmp_path, reader, nth, when)
    asked = len(reader.summed_up)
    database = await open_sqlite(tmp_path / "holdfast.db")
    kept, _ = await database.read(summary_chunks.get_progress, session_id)
    had = [event for event in await _log(database, session_id) if isinstance(event, Compacted)]
    stage = await set_up(tmp_path, ask=reader.ask, compacting=compacting(reader), database=database)
    await database.write(workers.mark_dead, dead, "killed", at=1)
    await stage.play(session_id, "Are you there?")
    written = await stage.log(session_id)
    left = await database.read(summary_chunks.get_progress, session_id)
    await stage.engine.close()
    await database.close()

    assert died
    assert_well_formed(written)
    compactions = [event for event in written if isinstance(event, Compacted)]
    assert [event.epoch for event in compactions] == [1], "it took place once"
    assert compactions[: len(had)] == had, "what was committed stays"
    assert asked - kept in (0, 1) or had, "at most the current chunk is lost"
    again = reader.summed_up[asked:]
    assert len(again) == (0 if had else compactions[0].chunks - kept), "no finished chunk was requested again"
    assert left == (0, 0)
    assert written[-1].outcome == "done"
    assert [text_of(event.parts) for event in written if isinstance(event, UserSaid)][-1] == "Are you there?"
    assert reader.refused == 0
    assert not dangling(reader.shown[-1].messages)
    assert tokens(reader.shown[-1]) <= WINDOW


async def _log(database: object, session_id: str) -> list[Event]:
    return [entry.event for entry in await database.read(log.read, session_id)]  # type: ignore[attr-defined]


async def test_the_range_of_crashes_covers_the_whole_turn(tmp_path: Path) -> None:
    reader = Reader(WINDOW)
    _, _, inside = await crashed(tmp_path / "a", reader, COMMITS, "before")
    asked = len(reader.summed_up)
    _, _, behind = await crashed(tmp_path / "b", Reader(WINDOW), COMMITS + 1, "before")

    assert asked > 3, "there are several chunks"
    assert inside
    assert not behind, "the scenario has more commits than are tried"


async def test_a_turn_without_a_crash_is_the_reference(tmp_path: Path) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await prepared(tmp_path, reader)
    events = await stage.play(session_id, "Where were we?")
    await stage.engine.close()
    await stage.database.close()

    assert isinstance(events[-1], TurnEnded)
    calls = [event for event in events if isinstance(event, ModelCalled)]
    assert [call.purpose for call in calls] == ["summary"] * 6
    assert [type(event).__name__ for event in events if event not in calls] == [
        "TurnStarted",
        "UserSaid",
        "Compacted",
        "ModelSaid",
        "TurnEnded",
    ]
