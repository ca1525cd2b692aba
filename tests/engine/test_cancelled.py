"""Interrupts, departures and retries at the worst moments: in the middle of a commit."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.identity import fate, identity
from holdfast.model.event import KIND_OF, ModelSaid, Quarantined, Recovered, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.providers.scripted import Call, Step
from holdfast.store import approvals, log, sessions, workers
from holdfast.store.workers import Identity
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

CALL = Step(say="On it.", call=(Call(name="look", arguments={}),))
SLEEP = Step(say="Good night.", call=(Call(name="sleep", arguments={}),))


class Slow:
    """A database whose answers come late after a commit of one kind of event, with word when that has happened."""

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
    page = sessions.list_page(tx, sessions.EVERYTHING, limit=1).sessions
    entries = log.tail(tx, page[0], 1) if page else []
    return KIND_OF[type(entries[0].event)] if entries else None


def slowed(stage: Stage, kind: str) -> Slow:
    slow = Slow(stage.database, kind)
    object.__setattr__(stage.engine.ground, "database", slow)
    return slow


@pytest.mark.parametrize("kind", ["model_said", "tool_started", "tool_ended", "turn_ended"])
async def test_an_interrupt_in_mid_commit_leaves_a_well_formed_log(
    tmp_path: Path, stages: list[Stage], kind: str
) -> None:
    stages.append(stage := await set_up(tmp_path, CALL, Step(say="Done."), Step(say="Yes."), Step(say="Yes.")))
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


async def test_words_that_wait_behind_an_interrupted_commit_are_answered(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One."), Step(say="Two.")))
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
async def test_a_worker_that_leaves_in_mid_commit_leaves_no_stale_draft(
    tmp_path: Path, stages: list[Stage], source: str
) -> None:
    stages.append(stage := await set_up(tmp_path, CALL, Step(say="Done."), Step(say="Yes.")))
    session = await stage.session(source=source)
    slow = slowed(stage, "model_said")
    turn = asyncio.create_task(stage.play(session.id, "Look"))
    await asyncio.wait_for(slow.committed.wait(), 10)

    closing = asyncio.create_task(stage.engine.close())
    await asyncio.sleep(0)
    slow.gate.set()
    await asyncio.wait_for(closing, 10)
    await asyncio.gather(turn, return_exceptions=True)

    assert await stage.database.read(log.draft, session.id) is None
    stages.append(other := await set_up(tmp_path, CALL, Step(say="Done."), Step(say="Yes."), database=stage.database))
    await other.play(session.id, "Still there?")
    assert_well_formed(await other.log(session.id))


async def test_words_whose_caller_left_while_they_were_admitted_are_answered_all_the_same(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One."), Step(say="Two.")))
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
    stages.append(stage := await set_up(tmp_path, Step(say="Half", hang=True), Step(say="Whole.")))
    session = await stage.session(source="library")
    first = asyncio.create_task(stage.play(session.id, "Do it", key="k"))
    await asyncio.sleep(0.2)
    await stage.engine.close("killed")
    await asyncio.gather(first, return_exceptions=True)
    stages.append(other := await set_up(tmp_path, Step(say="Whole."), database=stage.database))

    events = await asyncio.wait_for(other.play(session.id, "Do it", key="k"), 10)

    assert events[-1].outcome == "done"
    assert sum(isinstance(event, UserSaid) for event in await other.log(session.id)) == 1


async def test_ending_a_session_keeps_half_said_text(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="Precious words", hang=True)))
    session = await stage.session(source="run")
    turn = asyncio.create_task(stage.play(session.id, "Speak"))
    await asyncio.sleep(0.2)
    await stage.engine.close()
    await asyncio.gather(turn, return_exceptions=True)

    await stage.database.write(sessions.end, session.id, "user", at=9)

    events = await stage.log(session.id)
    assert [text_of(event.parts) for event in events if isinstance(event, ModelSaid)] == ["Precious words"]
    assert_well_formed(events)


async def test_clean_departures_do_not_count_as_deaths(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="Slow", hang=True, times=9)))
    session = await stage.session()
    await stage.engine.admit(session.id, "Go")
    for _ in range(5):
        await asyncio.sleep(0.05)
        await stage.engine.close("restart")
        stages.append(stage := await set_up(tmp_path, Step(say="Slow", hang=True, times=9), database=stage.database))
        await stage.engine.resume(session.id)
    await asyncio.sleep(0.05)

    events = await stage.log(session.id)
    assert sum(isinstance(event, Recovered) for event in events) >= 4
    assert not any(isinstance(event, Quarantined) for event in events)


async def test_a_bug_in_one_turn_is_told_to_its_caller_alone_and_the_next_is_served(
    tmp_path: Path, stages: list[Stage]
) -> None:
    asked: list[str] = []

    async def ask(request: Any) -> Any:
        asked.append(request.messages[-1].text)
        await asyncio.sleep(0.1)
        if len(asked) == 1:
            raise ValueError("a bug in a provider")
        yield (await _reply("Fine."))

    stages.append(stage := await set_up(tmp_path, ask=ask))
    session = await stage.session(source="run")
    first = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.sleep(0.05)
    second = asyncio.create_task(stage.play(session.id, "two"))

    with pytest.raises(ValueError, match="a bug in a provider"):
        await asyncio.wait_for(first, 10)
    assert (await asyncio.wait_for(second, 10))[-1].outcome == "done"
    assert_well_formed(await stage.log(session.id))


async def _reply(text: str) -> Any:
    from holdfast.model.asking import Reply
    from holdfast.model.message import Text

    return Reply(parts=(Text(text),), model="m", finish="stop")


async def test_questions_end_with_their_turn(tmp_path: Path, stages: list[Stage]) -> None:
    ask = Step(call=(Call(name="mail", arguments={"to": "all"}),))
    stages.append(stage := await set_up(tmp_path, ask, Step(say="Then not."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    async with asyncio.timeout(10):
        while not await stage.engine.questions(session.id):
            await asyncio.sleep(0.02)

    await stage.engine.interrupt(session.id)
    await asyncio.wait_for(turn, 10)

    assert await stage.database.read(approvals.unanswered, session.id) == []


async def test_draining_ends_every_task_of_a_session(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP))
    session = await stage.session()
    first = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.wait_for(stage.sleeper.sleeping.wait(), 10)
    stage.coordinator.wake(session.id)
    stage.coordinator.wake(session.id)

    await stage.engine.drain(0)

    await asyncio.wait_for(stage.engine.settled(), 10)
    assert stage.sleeper.woken
    await asyncio.gather(first, return_exceptions=True)


async def test_what_was_not_proved_is_not_taken_up(tmp_path: Path, stages: list[Stage]) -> None:
    import apsw

    from holdfast.model.errors import Corrupt

    stages.append(stage := await set_up(tmp_path, Step(say="One."), Step(say="Two.")))
    session = await stage.session()
    await stage.play(session.id, "one")
    raw = apsw.Connection(str(tmp_path / "holdfast.db"))
    raw.execute("UPDATE event SET body = replace(body, 'one', 'two') WHERE kind = 'user_said'")
    raw.close()
    stages.append(other := await set_up(tmp_path, Step(say="One."), Step(say="Two."), database=stage.database))

    with pytest.raises(Corrupt, match="not what was written"):
        await other.play(session.id, "two")


OURS = identity()


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
def test_what_became_of_a_process(change: dict[str, str], expected: str) -> None:
    other = {"host": OURS.host, "boot": OURS.boot, "pid": OURS.pid, "process_started": OURS.process_started} | change

    assert fate(Identity(**other), OURS) == expected  # type: ignore[arg-type]


async def test_a_zombie_is_gone() -> None:
    import os

    child = os.fork()
    if child == 0:
        os._exit(0)
    async with asyncio.timeout(10):
        while b") Z" not in Path(f"/proc/{child}/stat").read_bytes():
            await asyncio.sleep(0.01)
    try:
        assert fate(Identity(host=OURS.host, boot=OURS.boot, pid=child, process_started="1"), OURS) == "gone"
    finally:
        os.waitpid(child, 0)


async def test_a_session_held_before_a_reboot_is_free_after_it(tmp_path: Path, stages: list[Stage]) -> None:
    from holdfast.store import leases

    stages.append(stage := await set_up(tmp_path, Step(say="One.")))
    session = await stage.session()
    old = Identity(host=OURS.host, boot="another-boot pid:[1]", pid=OURS.pid, process_started=OURS.process_started)
    await stage.database.write(workers.register, "worker-old", "run", old, version="0", at=1)
    await stage.database.write(leases.take, session.id, "worker-old")

    assert (await asyncio.wait_for(stage.play(session.id, "Hello"), 20))[-1].outcome == "done"
