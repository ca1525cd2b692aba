"""What the model is told is on record before it is told, and changes only between turns."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engine.context.context import Context
from holdfast.engine.turn.request import build_frame
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    Event,
    InstructionPart,
    InstructionsLoaded,
    ModelSaid,
    RequestOptions,
    SessionOpened,
    SystemChanged,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.instructions import PARTS, InstructionsRequest, LoadedPart, changed_parts, hash_text
from holdfast.model.message import Text
from holdfast.model.provider import Delta, ModelReply, ModelRequest, ToolSpec
from holdfast.providers.anthropic import request as anthropic_request
from holdfast.providers.openai import request as openai_request
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import workers
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.stage import Reader, Stage, set_up
from tests.fakes.crashing import Crash, CrashingDatabase


class RulesFile:
    """A rules file on disk, as the loader of a worker reads it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        path.write_text(text)

    async def load(self, request: InstructionsRequest) -> list[InstructionsLoaded]:
        text = self.path.read_text()
        before = request.recorded.get("rules")
        notices = () if before is not None and before.text == text else (f"{self.path.name} was changed",)
        parts = [LoadedPart(part="rules", text=text, notices=notices)]
        if not request.has_own_system:
            parts.append(LoadedPart(part="system", text="Be brief."))
        return changed_parts(request.turn_id, request.recorded, parts)


def recorded(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.part, event.text) for event in events if isinstance(event, InstructionsLoaded)]


async def test_promise_29_it_is_on_record_before_the_model_is_told_and_only_when_it_has_changed(tmp_path: Path) -> None:
    rules = RulesFile(tmp_path / "AGENTS.md", "one")
    stage = await set_up(
        tmp_path, ScriptStep(say="a"), ScriptStep(say="b"), ScriptStep(say="c"), instructions=rules.load
    )
    session_id = (await stage.session(source="chat")).id

    first = await stage.play(session_id, "hi")
    second = await stage.play(session_id, "hi")
    rules.path.write_text("two")
    third = await stage.play(session_id, "hi")

    assert [type(event).__name__ for event in first] == [
        *("TurnStarted", "UserSaid", "InstructionsLoaded", "InstructionsLoaded", "ModelSaid", "TurnEnded")
    ]
    assert [recorded(events) for events in (first, second, third)] == [
        [("rules", "one"), ("system", "Be brief.")],
        [],
        [("rules", "two")],
    ]
    assert [request.system for request in stage.requests] == [
        "Be brief.\n\none",
        "Be brief.\n\none",
        "Be brief.\n\ntwo",
    ]
    loaded = [event for event in [*first, *third] if isinstance(event, InstructionsLoaded)]
    assert all(event.sha256 == hash_text(event.text) for event in loaded)
    assert loaded[-1].notices == ("AGENTS.md was changed",)


async def test_a_change_in_the_middle_of_a_turn_applies_from_the_next_one(tmp_path: Path) -> None:
    rules = RulesFile(tmp_path / "AGENTS.md", "one")

    class Editor(Reader):
        async def run(self, arguments: object, scene: object) -> object:  # type: ignore[override]
            rules.path.write_text("two")
            return await super().run({}, scene)  # type: ignore[arg-type]

    editor = Editor()
    editor.spec = ToolSpec("edit", "Edits the rules.", {"type": "object", "properties": {}})
    steps = (ScriptStep(call=(ScriptedCall(name="edit"),)), ScriptStep(say="done"), ScriptStep(say="next"))
    stage = await set_up(tmp_path, *steps, tools=[editor], instructions=rules.load)
    session_id = (await stage.session(source="chat")).id

    await stage.play(session_id, "hi")
    await stage.play(session_id, "hi")

    assert [request.system.splitlines()[-1] for request in stage.requests] == ["one", "one", "two"]


async def test_a_text_of_the_client_always_reaches_the_model(tmp_path: Path) -> None:
    rules = RulesFile(tmp_path / "AGENTS.md", "one")
    stage = await set_up(tmp_path, ScriptStep(say="a"), instructions=rules.load)
    session_id = (await stage.session(source="api", system="I am the client.")).id

    events = await stage.play(session_id, "hi")

    assert [request.system for request in stage.requests] == ["I am the client.\n\none"]
    assert recorded(events) == [("rules", "one")]


def test_the_instructions_of_a_request_come_first() -> None:
    frame = build_frame(
        RequestOptions(instructions="Only this time."),
        (),
        session_system="I am the client.",
        default_system="built in",
        recorded={"rules": InstructionsLoaded(turn_id="t", part="rules", text="one")},
        window=None,
        known=None,
    )

    assert frame.system == "Only this time.\n\nI am the client.\n\none"


async def crash(folder: Path, rules: RulesFile, nth: int, when: Literal["before", "after"]) -> tuple[str, str, bool]:
    """Play a turn until the nth commit kills the worker: the session, the worker, and whether it died."""
    inner = await open_sqlite(folder / "holdfast.db")
    stage = await set_up(folder, *SCRIPT, database=inner, instructions=rules.load)
    session_id = (await stage.session(source="chat")).id
    await stage.play(session_id, "first")
    rules.path.write_text("two")
    dying = CrashingDatabase(inner, nth, when)
    object.__setattr__(stage.engine.services, "database", dying)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    try:
        async with asyncio.timeout(20):
            await stage.play(session_id, "second")
    except Crash:
        pass
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await inner.close()
    return session_id, stage.worker_id, dying.dead


SCRIPT = (
    *(ScriptStep(say="a"), ScriptStep(call=(ScriptedCall(name="look"),)), ScriptStep(say="b")),
    *(ScriptStep(say="c"), ScriptStep(say="d"), ScriptStep(say="e")),
)
COMMITS = 6
"""Of the second turn: admission, instructions, reply with a call, start, result, end."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS + 1))
async def test_a_worker_that_dies_around_a_change_neither_loses_nor_mixes_it(
    tmp_path: Path, nth: int, when: Literal["before", "after"]
) -> None:
    rules = RulesFile(tmp_path / "AGENTS.md", "one")
    session_id, dead, has_died = await crash(tmp_path, rules, nth, when)
    assert has_died
    rules.path.write_text("three")

    stage = await set_up(tmp_path, *SCRIPT, instructions=rules.load)
    await stage.database.write(workers.mark_dead, dead, "killed", at=1)
    await stage.play(session_id, "third")

    log = await stage.log(session_id)
    assert recorded(log)[-1] == ("rules", "three"), "the newest text is announced at the latest with the next turn"
    by_turn: dict[str, list[str]] = {}
    for event in log:
        if isinstance(event, InstructionsLoaded) and event.part == "rules":
            by_turn.setdefault(event.turn_id, []).append(event.text)
    assert all(len(texts) == 1 for texts in by_turn.values()), "never twice in one turn"
    assert_told_as_recorded(log, stage)


def assert_told_as_recorded(log: list[Event], stage: Stage) -> None:
    """The last request has what a fresh reading of the log gives."""
    context = Context(Entry(seq, 0, event) for seq, event in enumerate(log, 1))
    frame = build_frame(
        RequestOptions(),
        (),
        session_system=context.system,
        default_system="not recorded",
        recorded=context.instructions,
        window=None,
        known=None,
    )
    assert stage.requests[-1].system == frame.system


async def test_a_resumed_turn_is_told_what_it_began_with(tmp_path: Path) -> None:
    """The model has replied once, the worker dies, the file changes: the next worker goes on with the same bytes."""
    rules = RulesFile(tmp_path / "AGENTS.md", "one")
    inner = await open_sqlite(tmp_path / "holdfast.db")
    step = ScriptStep(call=(ScriptedCall(name="sleep"),))
    stage = await set_up(tmp_path, step, database=inner, instructions=rules.load)
    session_id = (await stage.session(source="api")).id
    await stage.admit(session_id, "go")
    await stage.hanging_tool.sleeping.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    rules.path.write_text("two")

    after = await set_up(tmp_path, step, ScriptStep(say="done"), ScriptStep(say="next"), instructions=rules.load)
    await after.database.write(workers.mark_dead, stage.worker_id, "killed", at=1)
    await after.play(session_id, "more")

    assert [request.system.splitlines()[-1] for request in after.requests] == ["one", "two"]
    await inner.close()


async def test_the_record_is_committed_when_the_model_is_called(tmp_path: Path) -> None:
    rules = RulesFile(tmp_path / "AGENTS.md", "one")
    seen: list[list[tuple[str, str]]] = []

    async def looking(request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        seen.append(recorded(await stage.log(session_id)))
        yield ModelReply(parts=(Text("ok"),), model="m", finish="stop")

    stage = await set_up(tmp_path, ask=looking, instructions=rules.load)
    session_id = (await stage.session(source="chat")).id
    await stage.play(session_id, "hi")

    assert seen == [[("rules", "one"), ("system", "Be brief.")]]


texts = st.sampled_from(["", "one", "two", "a longer text \u2028 \ud83d\ude00"])
steps = st.one_of(
    st.tuples(st.just("part"), st.sampled_from(PARTS), texts),
    st.tuples(st.just("system"), st.just("system"), texts),
    st.tuples(st.just("turn"), st.just("system"), texts),
    st.tuples(st.just("compact"), st.just("system"), texts),
    st.tuples(st.just("unload"), st.just("system"), texts),
)


@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
@given(script=st.lists(steps, min_size=1, max_size=20), vendor=st.sampled_from([openai_request, anthropic_request]))
def test_the_bytes_sent_are_those_that_the_log_alone_gives(
    script: list[tuple[str, InstructionPart, str]], vendor: object
) -> None:
    """However the parts change between turns, compactions and evictions: the cached request is the fresh one, byte for byte."""
    entries = [Entry(1, 0, SessionOpened(source="chat"))]
    cached, frame = Context(entries), None

    def add(event: Event) -> None:
        entries.append(Entry(len(entries) + 1, 0, event))
        cached.add(entries[-1])

    for number, (kind, part, text) in enumerate(script):
        turn_id = f"turn-{number}"
        if kind == "part":
            add(InstructionsLoaded(turn_id=turn_id, part=part, text=text, sha256=hash_text(text)))
        elif kind == "system":
            add(SystemChanged(system=text))
        elif kind == "turn":
            for event in (
                TurnStarted(turn_id=turn_id),
                UserSaid(turn_id=turn_id, parts=(Text(f"q {text}"),)),
                ModelSaid(turn_id=turn_id, parts=(Text("a"),)),
                TurnEnded(turn_id=turn_id, outcome="done"),
            ):
                add(event)
        elif kind == "compact" and len(entries) > 3:
            add(Compacted(epoch=cached.epoch + 1, upto_seq=len(entries), summary="so far", how="model"))
        elif kind == "unload":
            first = cached.needed_from
            cached.unload()
            cached.reload(Context(entries[first - 1 :]))
        add(TurnStarted(turn_id="t"))
        add(UserSaid(turn_id="t", parts=(Text("now"),)))

        fresh = Context(entries)
        frame = frame_of(cached, frame)
        sent = frame.request(cached, "t", "m")
        expected = msgspec.structs.replace(frame_of(fresh, None).request(fresh, "t", "m"), cache=None)

        assert vendor.render(sent).body == vendor.render(expected).body  # type: ignore[attr-defined]
        add(ModelSaid(turn_id="t", parts=(Text("yes"),)))
        add(TurnEnded(turn_id="t", outcome="done"))


def frame_of(context: Context, known: object) -> object:
    return build_frame(
        RequestOptions(),
        (),
        session_system=context.system,
        default_system="built in",
        recorded=context.instructions,
        window=None,
        known=known,  # type: ignore[arg-type]
    )
