"""Rewinds: nothing is deleted, and rewound messages leave the context."""

from pathlib import Path
from typing import Literal

import pytest

from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Conflict, Invalid
from holdfast.model.event import Compacted, CompactionUndone, Rewound, TurnStarted, UserSaid
from holdfast.model.message import text_of
from holdfast.model.session import messages, standing
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import log, sessions
from tests.engine.stage import Stage, set_up
from tests.fakes.crashing import Crash, CrashingDatabase


async def shown(stage: Stage, session_id: str) -> list[str]:
    _, entries = await stage.engine.read(session_id)
    return [message.text for message in messages(standing(entries))]


async def test_rewound_messages_stay_in_the_log_and_leave_the_context(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    for words in ("One", "Two", "Three"):
        await stage.play(session.id, words)
    before = await stage.log(session.id)

    taken = await stage.engine.rewinds.undo_turns(session.id, count=2)
    await stage.play(session.id, "Four")

    assert (text_of(taken.parts), taken.messages) == ("Two", 4)
    assert (await stage.log(session.id))[: len(before)] == before, "nothing was deleted"
    assert await shown(stage, session.id) == ["One", "You said: One", "Four", "You said: Four"]
    assert [message.text for message in stage.requests[-1].messages] == ["One", "You said: One", "Four"]
    assert (await stage.engine.read(session.id))[0].summary.message_count == 8, "a log only grows"


async def test_rewound_turns_are_not_rewound_twice(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    for words in ("One", "Two"):
        await stage.play(session.id, words)

    first = await stage.engine.rewinds.undo_turns(session.id)
    second = await stage.engine.rewinds.undo_turns(session.id)

    assert [text_of(taken.parts) for taken in (first, second)] == ["Two", "One"]
    with pytest.raises(Invalid, match="the session has no turns"):
        await stage.engine.rewinds.undo_turns(session.id)


@pytest.mark.parametrize("count", [0, 2, 99])
async def test_no_more_turns_can_be_rewound_than_there_are(tmp_path: Path, stages: list[Stage], count: int) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "One")

    with pytest.raises(Invalid, match=f"^{count} turns cannot be undone: there is 1 to undo$"):
        await stage.engine.rewinds.undo_turns(session.id, count=count)

    assert not any(isinstance(event, Rewound) for event in await stage.log(session.id))


async def test_nothing_is_rewound_while_a_turn_is_open(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, ScriptStep(call=(ScriptedCall("sleep"),)))
    stages.append(stage)
    session = await stage.session()
    await stage.admit(session.id, "Sleep")
    await stage.hanging_tool.sleeping.wait()

    with pytest.raises(Busy, match="interrupt it first"):
        await stage.engine.rewinds.undo_turns(session.id)


async def test_a_compaction_that_covers_rewound_messages_is_undone_first(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    for words in ("One", "Two"):
        await stage.play(session.id, words)
    now, _ = await stage.engine.read(session.id)
    compacted = Compacted(epoch=1, upto_seq=now.seq, summary="Two things were said.", how="test")
    await stage.database.write(log.append_unheld, session.id, [compacted], at=1)

    await stage.engine.rewinds.undo_turns(session.id)

    assert (await stage.log(session.id))[-2:] == [CompactionUndone(epoch=0), Rewound(to_seq=5)]
    await stage.play(session.id, "Three")
    assert [message.text for message in stage.requests[-1].messages] == ["One", "You said: One", "Three"]


async def test_input_that_joined_the_turn_is_retried_with_its_first_input(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "First")
    _, entries = await stage.engine.read(session.id)
    [turn] = [entry.event for entry in entries if isinstance(entry.event, TurnStarted)]
    [said] = [entry.event for entry in entries if isinstance(entry.event, UserSaid)]
    joined = UserSaid(turn_id=turn.turn_id, parts=said.parts, input_id="turn-2")
    await stage.database.write(log.append_unheld, session.id, [joined], at=1)

    back = await stage.engine.rewinds.plan_turns(session.id, why="retry")

    assert text_of(back.parts) == "FirstFirst"
    assert isinstance(entries[0], Entry)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_leaves_the_old_reply_or_the_retried_message_and_nothing_between(
    tmp_path: Path, stages: list[Stage], when: Literal["before", "after"]
) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "One")
    before = await stage.log(session.id)
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(stage.database, 1, when))

    back = await stage.engine.rewinds.plan_turns(session.id, why="retry")
    with pytest.raises(Crash):
        await stage.admit(session.id, back.parts, instead=back)

    object.__setattr__(stage.engine.services, "database", stage.database)
    added = [type(event) for event in (await stage.log(session.id))[len(before) :]]
    assert added == ([] if when == "before" else [Rewound, TurnStarted, UserSaid])


async def test_messages_added_meanwhile_by_others_are_not_rewound(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "One")
    back = await stage.engine.rewinds.plan_turns(session.id, why="retry")
    await stage.play(session.id, "Two")
    before = await stage.log(session.id)

    with pytest.raises(Conflict, match="has changed meanwhile; nothing was undone"):
        await stage.admit(session.id, back.parts, instead=back)

    assert await stage.log(session.id) == before


async def test_a_title_set_meanwhile_does_not_prevent_a_rewind(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    session = await stage.session()
    await stage.play(session.id, "One")
    back = await stage.engine.rewinds.plan_turns(session.id, why="retry")
    await stage.database.write(sessions.rename, session.id, "Numbers", at=1)

    async for _ in stage.say(session.id, back.parts, instead=back):
        pass

    assert await shown(stage, session.id) == ["One", "You said: One"]
    assert (await stage.engine.read(session.id))[0].summary.title == "Numbers"
