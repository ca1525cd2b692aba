"""Die around every commit of a turn with two tool calls, then let another worker continue it."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from holdfast.model.event import ModelSaid, ToolEnded, TurnEnded, UserSaid
from holdfast.model.message import ToolCall, text_of
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import workers
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase

SCRIPT = (
    ScriptStep(
        say="On it.", call=(ScriptedCall(name="mail", arguments={"to": "bo"}), ScriptedCall(name="look", arguments={}))
    ),
    ScriptStep(say="Bo has mail."),
)
COMMITS = 7
"""Worker, session, admission, reply with calls, starts, results (two, in any order, maybe together), end: counted by the test below."""


async def crashed(folder: Path, nth: int, when: Literal["before", "after"]) -> tuple[str | None, str, bool]:
    """Run the scenario until the nth commit kills the worker; returns the session if it is known, the worker, and whether it died."""
    inner = await open_sqlite(folder / "holdfast.db")
    stage = await set_up(folder, *SCRIPT, database=inner)
    dying = CrashingDatabase(inner, nth, when)
    object.__setattr__(stage.engine.services, "database", dying)
    # A dead process reports no unawaited tasks.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    session_id = None
    try:
        session_id = (await stage.session()).id
        async with asyncio.timeout(20):
            await stage.play(session_id, "Mail Bo, please")
    except Crash:
        pass
    except TimeoutError:
        raise AssertionError("a dead worker hangs") from None
    worker_id = stage.engine.services.worker_id
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await inner.close()
    return session_id, worker_id, dying.dead


async def recovered(folder: Path, dead: str, session_id: str, source_said: str) -> Stage:
    """Another worker on the same store, which continues everything."""
    stage = await set_up(
        folder, *SCRIPT, ScriptStep(say="All good."), ScriptStep(say="All good."), ScriptStep(say="All good.")
    )
    await stage.database.write(workers.mark_dead, dead, "killed", at=1)
    await stage.play(session_id, source_said)
    return stage


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS + 3))
async def test_promise_1_and_7_a_crash_at_any_commit_loses_nothing_acknowledged_and_acts_once(
    tmp_path: Path, nth: int, when: Literal["before", "after"]
) -> None:
    session_id, dead, died = await crashed(tmp_path, nth, when)
    if session_id is None:
        return  # it died before the session was acknowledged
    before_recovery = await open_sqlite(tmp_path / "holdfast.db")
    await before_recovery.close()

    stage = await recovered(tmp_path, dead, session_id, "Are you there?")
    log = await stage.log(session_id)
    await stage.engine.close()
    await stage.database.close()

    assert_well_formed(log)
    asked = [text_of(event.parts) for event in log if isinstance(event, UserSaid)]
    assert asked[-1] == "Are you there?"
    sent = stage.mailer.outbox.read_text().count("bo") if stage.mailer.outbox.exists() else 0
    assert sent <= 1 or not died, "no second mail"
    unknown = [event for event in log if isinstance(event, ToolEnded) and event.outcome == "unknown"]
    called = any(isinstance(part, ToolCall) for event in log if isinstance(event, ModelSaid) for part in event.parts)
    if called and sent == 0:
        assert unknown, "a call that may have acted is reported as unknown"
    assert isinstance(log[-1], TurnEnded)
    assert log[-1].outcome == "done"


async def test_the_range_of_crashes_covers_the_whole_turn(tmp_path: Path) -> None:
    _, _, died_inside = await crashed(tmp_path / "a", COMMITS - 2, "before")
    _, _, died_behind = await crashed(tmp_path / "b", COMMITS + 3, "before")

    assert died_inside
    assert not died_behind, "the scenario has more commits than are tried"
