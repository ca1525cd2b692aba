"""Interrupts, shutdowns and retries at the worst moment: during a commit."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.event import KIND_OF, ModelSaid, Quarantined, Recovered, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.process_lookup import check_process, current_identity
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import approvals, log, session_list, sessions, workers
from holdfast.store.repos.workers import Identity
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

CALL = ScriptStep(say="On it.", call=(ScriptedCall(name="look", arguments={}),))
SLEEP = ScriptStep(say="Good night.", call=(ScriptedCall(name="sleep", arguments={}),))


class Slow:
    """A database that returns late after a commit of one kind of event, and signals the commit."""

    def __init__(self, inner: Any, kind: str) -> None:
        self._inner = inner
        self._kind = kind
        self.committed = asyncio.Event()
        self.gate = asyncio.Event()

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = await self._inner.read(_last)
        result = await self._inner.write(work, *args, **kwargs)
        after = await self._inner.read(_last)
        if after != before and after == self._kind and not self.committed.is_set():
            self.committed.set()
            await self.gate.wait()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _last(tx: Any) -> str | None:
    page = session_list.list_page(tx, session_list.EVERYTHING, limit=1).sessions
    entries = log.read_tail(tx, page[0], 1) if page else []
    return KIND_OF[type(entries[0].event)] if entries else None


def slowed(stage: Stage, kind: str) -> Slow:
    slow = Slow(stage.database, kind)
    object.__setattr__(stage.engine.services, "database", slow)
    return slow


@pytest.mark.parametrize("kind", ["model_said", "tool_started", "tool_ended", "turn_ended"])
async def test_an_interrupt_during_a_commit_leaves_a_well_formed_log(
    tmp_path: Path, stages: list[Stage], kind: str
) -> None:
    stages.append(
        stage := await set_up(tmp_path, CALL, ScriptStep(say="Done."), ScriptStep(say="Yes."), ScriptStep(say="Yes."))
    )
    session = await stage.session()
    slow = slowed(stage, kind)
    turn = asyncio.create_task(stage.play(session.id, "Look"))
    await asyncio.wait_for(slow.committed.wait(), 10)

    await stage.engine.interrupt(session.id)
    slow.gate.set()

    events = await asyncio.wait_for(turn, 10)
    assert events[-1].outcome in ("done", "interrupted")
    assert (await asyncio.wait_for(stage.play(session.id, "Still there?"), 10))[-1].outcome == "done"
    assert_well_formed(await stage.log(session.id))


async def test_messages_queued_behind_an_interrupted_commit_are_answered(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two.")))
    session = await stage.session()
    slow = slowed(stage, "turn_started")
    first = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.sleep(0)
    second = asyncio.create_task(stage.play(session.id, "two"))
    await asyncio.sleep(0.05)

    await stage.engine.interrupt(session.id)
    slow.gate.set()

    await asyncio.wait_for(first, 10)
    events = await asyncio.wait_for(second, 10)
    assert isinstance(events[-1], TurnEnded)
    assert_well_formed(await stage.log(session.id))


@pytest.mark.parametrize("source", ["run", "api"])
async def test_a_worker_that_shuts_down_during_a_commit_leaves_no_stale_draft(
    tmp_path: Path, stages: list[Stage], source: str
) -> None:
    stages.append(stage := await set_up(tmp_path, CALL, ScriptStep(say="Done."), ScriptStep(say="Yes.")))
    session = await stage.session(source=source)
    slow = slowed(stage, "model_said")
    turn = asyncio.create_task(stage.play(session.id, "Look"))
    await asyncio.wait_for(slow.committed.wait(), 10)

    closing = asyncio.create_task(stage.engine.close())
    await asyncio.sleep(0)
    slow.gate.set()
    await asyncio.wait_for(closing, 10)
    await asyncio.gather(turn, return_exceptions=True)

    assert await stage.database.read(log.get_draft, session.id) is None
    stages.append(
        other := await set_up(tmp_path, CALL, ScriptStep(say="Done."), ScriptStep(say="Yes."), database=stage.database)
    )
    await other.play(session.id, "Still there?")
    assert_well_formed(await other.log(session.id))


async def test_a_message_whose_caller_disconnected_during_admission_is_answered(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two.")))
    session = await stage.session()
    slow = slowed(stage, "user_said")
    caller = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.wait_for(slow.committed.wait(), 10)

    caller.cancel()
    slow.gate.set()
    await asyncio.gather(caller, return_exceptions=True)

    assert (await asyncio.wait_for(stage.play(session.id, "two"), 10))[-1].outcome == "done"
    said = [text_of(event.parts) for event in await stage.log(session.id) if isinstance(event, ModelSaid)]
    assert said == ["One.", "Two."]


async def test_promise_8_a_retry_after_the_worker_died_gets_the_turn_done(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Half", hang=True), ScriptStep(say="Whole.")))
    session = await stage.session(source="library")
    first = asyncio.create_task(stage.play(session.id, "Do it", key="k"))
    await asyncio.sleep(0.2)
    await stage.engine.close("killed")
    await asyncio.gather(first, return_exceptions=True)
    stages.append(other := await set_up(tmp_path, ScriptStep(say="Whole."), database=stage.database))

    events = await asyncio.wait_for(other.play(session.id, "Do it", key="k"), 10)

    assert events[-1].outcome == "done"
    assert sum(isinstance(event, UserSaid) for event in await other.log(session.id)) == 1


async def test_ending_a_session_keeps_streamed_text(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Precious words", hang=True)))
    session = await stage.session(source="run")
    turn = asyncio.create_task(stage.play(session.id, "Speak"))
    await asyncio.sleep(0.2)
    await stage.engine.close()
    await asyncio.gather(turn, return_exceptions=True)

    await stage.database.write(sessions.end, session.id, "user", at=9)

    events = await stage.log(session.id)
    assert [text_of(event.parts) for event in events if isinstance(event, ModelSaid)] == ["Precious words"]
    assert_well_formed(events)


async def test_orderly_shutdowns_do_not_count_as_deaths(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Slow", hang=True, times=9)))
    session = await stage.session()
    await stage.admit(session.id, "Go")
    for _ in range(5):
        await asyncio.sleep(0.05)
        await stage.engine.close("restart")
        stages.append(
            stage := await set_up(tmp_path, ScriptStep(say="Slow", hang=True, times=9), database=stage.database)
        )
        await stage.engine.resume(session.id)
    await asyncio.sleep(0.05)

    events = await stage.log(session.id)
    assert sum(isinstance(event, Recovered) for event in events) >= 4
    assert not any(isinstance(event, Quarantined) for event in events)


async def test_a_bug_in_one_turn_ends_that_turn_with_its_reason_and_the_next_one_runs(
    tmp_path: Path, stages: list[Stage]
) -> None:
    asked: list[str] = []

    async def ask(request: Any) -> Any:
        asked.append(request.messages[-1].text)
        await asyncio.sleep(0.1)
        if asked[-1] == "one":
            raise ValueError("a bug in a provider")
        yield (await _reply("Fine."))

    stages.append(stage := await set_up(tmp_path, ask=ask))
    session = await stage.session(source="run")
    first = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(stage.play(session.id, "two"))

    failed = (await asyncio.wait_for(first, 10))[-1]
    assert isinstance(failed, TurnEnded)
    assert (failed.outcome, failed.code, failed.reason) == ("failed", "internal", "ValueError: a bug in a provider")
    assert (await asyncio.wait_for(second, 10))[-1].outcome == "done"
    assert_well_formed(await stage.log(session.id))


async def _reply(text: str) -> Any:
    from holdfast.model.message import Text
    from holdfast.model.provider import ModelReply

    return ModelReply(parts=(Text(text),), model="m", finish="stop")


async def test_questions_end_with_their_turn(tmp_path: Path, stages: list[Stage]) -> None:
    ask = ScriptStep(call=(ScriptedCall(name="mail", arguments={"to": "all"}),))
    stages.append(stage := await set_up(tmp_path, ask, ScriptStep(say="Then not."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    async with asyncio.timeout(10):
        while not await stage.questions(session.id):
            await asyncio.sleep(0.02)

    await stage.engine.interrupt(session.id)
    await asyncio.wait_for(turn, 10)

    assert await stage.database.read(approvals.list_unanswered, session.id) == []


async def test_draining_ends_every_task_of_a_session(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP))
    session = await stage.session()
    first = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), 10)
    stage.scheduler.wake(session.id)
    stage.scheduler.wake(session.id)

    await stage.engine.drain(0)

    await asyncio.wait_for(stage.engine.settled(), 10)
    assert stage.hanging_tool.woken
    await asyncio.gather(first, return_exceptions=True)


async def test_an_unverified_log_is_not_resumed(tmp_path: Path, stages: list[Stage]) -> None:
    import apsw

    from holdfast.model.errors import Corrupt

    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two.")))
    session = await stage.session()
    await stage.play(session.id, "one")
    raw = apsw.Connection(str(tmp_path / "holdfast.db"))
    raw.execute("UPDATE event SET body = replace(body, 'one', 'two') WHERE kind = 'user_said'")
    raw.close()
    stages.append(
        other := await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two."), database=stage.database)
    )

    with pytest.raises(Corrupt, match="was changed"):
        await other.play(session.id, "two")


OURS = current_identity()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "alive"),
        ({"process_started": "1"}, "gone"),
        ({"boot": "another-boot pid:[1]"}, "gone"),
        ({"boot": OURS.boot.split(" ")[0] + " pid:[1]"}, "elsewhere"),
        ({"host": "elsewhere"}, "elsewhere"),
    ],
    ids=["itself", "a pid that came back", "before a reboot", "another container", "another machine"],
)
def test_the_state_of_a_process(change: dict[str, str], expected: str) -> None:
    other = {"host": OURS.host, "boot": OURS.boot, "pid": OURS.pid, "process_started": OURS.process_started} | change

    assert check_process(Identity(**other), OURS) == expected  # type: ignore[arg-type]


@pytest.mark.process
async def test_a_zombie_is_gone() -> None:
    import os

    child = os.fork()
    if child == 0:
        os._exit(0)
    async with asyncio.timeout(10):
        while b") Z" not in Path(f"/proc/{child}/stat").read_bytes():
            await asyncio.sleep(0.01)
    try:
        assert check_process(Identity(host=OURS.host, boot=OURS.boot, pid=child, process_started="1"), OURS) == "gone"
    finally:
        os.waitpid(child, 0)


async def test_a_session_held_before_a_reboot_is_free_after_it(tmp_path: Path, stages: list[Stage]) -> None:
    from holdfast.store.repos import leases

    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One.")))
    session = await stage.session()
    old = Identity(host=OURS.host, boot="another-boot pid:[1]", pid=OURS.pid, process_started=OURS.process_started)
    await stage.database.write(workers.register, "worker-old", "run", old, version="0", at=1)
    await stage.database.write(leases.take, session.id, "worker-old")

    assert (await asyncio.wait_for(stage.play(session.id, "Hello"), 20))[-1].outcome == "done"
