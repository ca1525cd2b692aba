"""Recovery of a turn whose worker is gone."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.engine.liveness import lease_transactions
from holdfast.model.event import (
    ModelSaid,
    Recovered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall, text_of
from holdfast.providers.scripted import ScriptStep
from holdfast.store.repos import leases, log, workers
from holdfast.store.repos.log import ReplyDraft
from holdfast.store.sqlite.driver import SqliteDatabase
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.counting import CountingDatabase
from tests.fakes.migrated import open_migrated

TURN = "turn-1"
BEGUN = [TurnStarted(turn_id=TURN, worker_id="worker-dead"), UserSaid(turn_id=TURN, parts=(Text("Mail Bo"),))]
ASKED = ModelSaid(
    turn_id=TURN, parts=(Text("On it."), ToolCall("c1", "mail", '{"to":"bo"}'), ToolCall("c2", "look", "{}"))
)


async def left_behind(stage: Stage, *events: object, source: str = "api", draft: str = "") -> str:
    """A session as a dead worker left it."""
    session = await stage.session(source=source)

    def die(tx: object) -> None:
        if workers.get(tx, "worker-dead") is None:  # type: ignore[arg-type]
            workers.register(
                tx,
                "worker-dead",
                "test",
                workers.Identity(host="h", boot="b", pid=1, process_started="1"),
                version="0",
                at=1,
            )  # type: ignore[arg-type]
        lease = leases.take(tx, session.id, "worker-dead")  # type: ignore[arg-type]
        log.append(tx, lease, [*BEGUN, *events], at=1)  # type: ignore[arg-type]
        if draft:
            log.save_draft(tx, lease, ReplyDraft(TURN, draft, 1, called="test:asked"))  # type: ignore[arg-type]
        workers.mark_dead(tx, "worker-dead", "killed", at=2)  # type: ignore[arg-type]

    await stage.database.write(die)
    return session.id


async def test_the_state_is_interrupted_until_the_turn_is_resumed(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Hi.")))

    session_id = await left_behind(stage)

    session, _ = await stage.engine.read(session_id)
    assert session.state == "interrupted"


async def test_an_interrupted_turn_can_be_rewound_and_retried(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    session_id = await left_behind(stage, draft="Half a wo")

    back = await stage.engine.rewinds.plan_turns(session_id, why="retry")
    async for _ in stage.say(session_id, back.parts, instead=back):
        pass

    events = await stage.log(session_id)
    assert_well_formed(events)
    [cut_off] = [event for event in events if isinstance(event, ModelSaid) and event.partial]
    assert text_of(cut_off.parts) == "Half a wo", "the log keeps the rewound messages"
    assert cut_off.called == "test:asked"
    assert [event.called for event in events if isinstance(event, TurnEnded)] == ["test:asked", ""]
    assert [event.action for event in events if isinstance(event, Recovered)] == ["close"]
    assert [message.text for message in stage.requests[-1].messages] == [text_of(back.parts)]


async def test_an_api_turn_continues_and_the_new_message_follows(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Mail sent."), ScriptStep(say="Yes.")))
    session_id = await left_behind(stage)

    await stage.play(session_id, "And?")

    events = await stage.log(session_id)
    assert_well_formed(events)
    assert [text_of(event.parts) for event in events if isinstance(event, ModelSaid)] == ["Mail sent.", "Yes."]
    assert [(event.attempt, event.action) for event in events if isinstance(event, Recovered)] == [(1, "continue")]


async def test_an_interrupted_run_is_closed_by_a_new_message(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Yes.")))
    session_id = await left_behind(stage, source="run")

    await stage.play(session_id, "And?")

    events = await stage.log(session_id)
    assert_well_formed(events)
    assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["interrupted", "done"]


async def test_resume_continues_a_chat_turn_without_a_message(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Here I am.")))
    session_id = await left_behind(stage, source="chat")

    await stage.engine.resume(session_id)
    async for item in stage.engine.watch(session_id):
        if isinstance(getattr(item, "event", None), TurnEnded):
            break

    assert_well_formed(await stage.log(session_id))


async def test_promise_2_streamed_text_becomes_a_partial_message(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Bo has mail now."), ScriptStep(say="Yes.")))
    session_id = await left_behind(stage, draft="Bo has")

    await stage.play(session_id, "And?")

    said = [event for event in await stage.log(session_id) if isinstance(event, ModelSaid)]
    assert [(text_of(event.parts), event.partial) for event in said] == [
        ("Bo has", True),
        ("Bo has mail now.", False),
        ("Yes.", False),
    ]
    assert "Bo has" not in [message.text for message in stage.requests[0].messages], "requested again from the start"


async def test_promise_7_a_call_that_had_started_is_unknown_and_never_run_again(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(
        stage := await set_up(
            tmp_path, ScriptStep(say="never"), ScriptStep(say="I shall check."), ScriptStep(say="Yes.")
        )
    )
    session_id = await left_behind(stage, ASKED, ToolStarted(turn_id=TURN, call_id="c1", name="mail"))

    await stage.play(session_id, "And?")

    events = await stage.log(session_id)
    assert_well_formed(events)
    assert not stage.mailer.outbox.exists()
    results = {event.call_id: event for event in events if isinstance(event, ToolEnded)}
    assert results["c1"].outcome == "unknown"
    assert "unknown" in text_of(results["c1"].parts)
    assert results["c2"].outcome == "ok", "the call that never started runs"


async def test_a_repeatable_call_that_had_started_runs_again(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(
        stage := await set_up(tmp_path, ScriptStep(say="never"), ScriptStep(say="Quiet."), ScriptStep(say="Yes."))
    )
    asked = ModelSaid(turn_id=TURN, parts=(ToolCall("c2", "look", "{}"),))
    session_id = await left_behind(stage, asked, ToolStarted(turn_id=TURN, call_id="c2", name="look"))

    await stage.play(session_id, "And?")

    events = await stage.log(session_id)
    assert_well_formed(events)
    assert stage.reader.runs == 1
    assert [event.attempt for event in events if isinstance(event, ToolStarted)] == [1, 2]


async def test_recovering_twice_changes_nothing_more(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(
        stage := await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two."), ScriptStep(say="Three."))
    )
    session_id = await left_behind(stage, ASKED, ToolStarted(turn_id=TURN, call_id="c1", name="mail"))
    await stage.play(session_id, "And?")
    before = await stage.log(session_id)

    await stage.engine.resume(session_id)
    await stage.play(session_id, "And then?")

    assert (await stage.log(session_id))[: len(before)] == before
    assert sum(isinstance(event, Recovered) for event in await stage.log(session_id)) == 1


class LateReads(CountingDatabase):
    """Begins the reads of one kind only when `may_begin` is set."""

    def __init__(self, inner: SqliteDatabase, late: Callable[..., Any]) -> None:
        super().__init__(inner)
        self._late = late
        self.may_begin = asyncio.Event()
        self.may_begin.set()

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if work is self._late:
            await self.may_begin.wait()
        return await super().read(work, *args, **kwargs)


async def test_a_turn_that_has_just_begun_is_not_taken_for_one_that_was_left(
    tmp_path: Path, stages: list[Stage]
) -> None:
    database = LateReads(await open_migrated(tmp_path / "holdfast.db"), lease_transactions.has_work)
    steps = ScriptStep(say="One."), ScriptStep(say="Two.")
    stages.append(stage := await set_up(tmp_path, *steps, database=database))  # type: ignore[arg-type]
    session = await stage.session(source="chat")
    await stage.play(session.id, "First")
    await stage.engine.settled()
    database.may_begin.clear()

    stage.scheduler.wake(session.id)  # a request to stop does this, also if the turn has just ended
    await stage.admit(session.id, "Second")
    database.may_begin.set()
    await stage.engine.settled()

    events = await stage.log(session.id)
    assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["done", "done"]
    assert not [event for event in events if isinstance(event, Recovered)]
