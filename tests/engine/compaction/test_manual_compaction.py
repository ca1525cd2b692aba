"""Manual compaction, pins, undo, and the context before and after."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.context.context import Context
from holdfast.model.errors import Busy, Invalid, LeaseLost, NotFound, Unavailable
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Event,
    ModelCalled,
    Rewound,
    TurnEnded,
    UserSaid,
)
from holdfast.model.message import Part, Text, ToolCall, text_of
from holdfast.model.provider import ModelRequest
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.engine.counting_model import Reader, dangling, newest
from tests.engine.stage import Stage, gone, set_up
from tests.engine.well_formed import assert_well_formed
from tests.providers.messages import anthropic_body, openai_body

WINDOW = 16_000


def say(number: int) -> str:
    return f"Turn {number}: " + "something about the garden and the rain " * 5


async def ready(folder: Path, stages: list[Stage], reader: Reader, **options: Any) -> tuple[Stage, str]:
    """A session of twelve turns."""
    stage = await set_up(folder, ask=reader.ask, compacting=reader.compacting(), **options)
    stages.append(stage)
    session = await stage.session()
    for number in range(12):
        await stage.play(session.id, say(number))
    return stage, session.id


async def test_promise_16_and_17_a_manual_compaction_raises_the_epoch_and_keeps_the_log(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    before = await stage.log(session_id)
    event = await stage.engine.compact(session_id, "the roses")
    session, entries = await stage.engine.read(session_id)
    await stage.play(session_id, "And now?")

    assert isinstance(event, Compacted)
    assert (session.id, session.summary.epoch, session.state) == (session_id, 1, "waiting")
    written = [entry.event for entry in entries]
    assert [*written[: len(before)], written[-1]] == [*before, event]
    assert all(isinstance(one, ModelCalled) for one in written[len(before) : -1])
    assert (event.how, event.about, event.turn_id) == ("summary", "the roses", "")
    assert "the roses" in reader.summed_up[0].messages[0].text
    shown = reader.shown[-1].messages
    assert "They talked" in shown[0].text
    assert "recall(" in shown[0].text
    assert f"messages 1 to {event.upto_seq}" in shown[0].text
    assert [message.text for message in shown[-9:]] == [
        *[text for n in range(8, 12) for text in (say(n), f"Noted: {say(n)[:40]}")],
        "And now?",
    ], "the last eight messages are verbatim"
    assert session.summary.tokens_out == 12 * 10 + 10, "the usage of the summary is counted"


async def test_a_server_that_undercounts_does_not_make_a_compaction_look_like_growth(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    reader.share = 0.01
    stage, session_id = await ready(tmp_path, stages, reader)
    event = await stage.engine.compact(session_id)

    assert isinstance(event, Compacted)
    assert event.tokens_after < event.tokens_before


async def test_promise_17_an_undo_restores_the_previous_context(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    first = await stage.engine.compact(session_id)
    for number in range(12, 24):
        await stage.play(session_id, say(number))
    between = reader.shown[-1].messages
    await stage.engine.compact(session_id)
    undone = await stage.engine.undo_compaction(session_id)
    await stage.play(session_id, "One back")
    once = reader.shown[-1].messages
    again = await stage.engine.undo_compaction(session_id)
    await stage.play(session_id, "Two back")
    twice = reader.shown[-1].messages
    session, _ = await stage.engine.read(session_id)

    assert isinstance(first, Compacted)
    assert (undone, again) == (CompactionUndone(epoch=1), CompactionUndone(epoch=0))
    assert once[: len(between)] == between
    assert [message.text for message in twice if message.role == "user"] == [
        *[say(number) for number in range(24)],
        "One back",
        "Two back",
    ]
    assert session.summary.epoch == 0
    with pytest.raises(Invalid, match="nothing to undo"):
        await stage.engine.undo_compaction(session_id)


async def test_a_compaction_without_gain_is_reported_and_logged(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    stages.append(stage := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting()))
    session = await stage.session()
    await stage.play(session.id, "Hello")

    event = await stage.engine.compact(session.id)

    assert isinstance(event, CompactionFailed)
    assert event.code == "no_gain"
    assert (await stage.log(session.id))[-1] == event
    assert reader.summed_up == [], "no model was called without need"


async def test_messages_during_a_manual_compaction_get_their_turn_afterwards(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    reader.go.clear()
    compacting = asyncio.create_task(stage.engine.compact(session_id))
    await reader.asked.wait()
    turns = [asyncio.create_task(stage.play(session_id, f"Meanwhile {n}")) for n in range(10)]
    while len(await stage.queued(session_id)) < 10:
        await asyncio.sleep(0)
    with pytest.raises(Busy):
        await stage.play(session_id, "At once, or not at all", mode=None)
    reader.go.set()
    event = await compacting
    ends = [events[-1] for events in await asyncio.gather(*turns)]
    written = await stage.log(session_id)

    assert isinstance(event, Compacted)
    assert {end.outcome for end in ends} == {"done"}
    asked = [text_of(event.parts) for event in written if isinstance(event, UserSaid)]
    assert sorted(asked[12:]) == [f"Meanwhile {n}" for n in range(10)]
    assert_well_formed(written)


async def test_a_user_can_stop_a_compaction_and_queued_messages_are_answered(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    reader.go.clear()
    compacting = asyncio.create_task(stage.engine.compact(session_id))
    await reader.asked.wait()
    turn = asyncio.create_task(stage.play(session_id, "Meanwhile"))
    while not await stage.queued(session_id):
        await asyncio.sleep(0)
    compacting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await compacting
    events = await turn

    assert events[-1].outcome == "done"
    assert not [event for event in await stage.log(session_id) if isinstance(event, Compacted | CompactionFailed)]


async def test_a_worker_that_shuts_down_during_a_chunk_of_the_summary_says_so(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    before = await stage.log(session_id)
    reader.go.clear()
    compacting = asyncio.create_task(stage.engine.compact(session_id))
    await reader.asked.wait()
    await stage.engine.drain(0)

    with pytest.raises(Unavailable, match="shutting down"):
        await compacting
    assert await stage.log(session_id) == before


async def test_promise_11_a_session_held_by_another_worker_is_busy_and_one_of_a_dead_worker_is_not(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    stages.append(
        other := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting(), database=stage.database)
    )
    reader.go.clear()
    compacting = asyncio.create_task(stage.engine.compact(session_id))
    await reader.asked.wait()
    with pytest.raises(Busy, match=f"held by {stage.worker_id}"):
        await other.engine.compact(session_id)
    with pytest.raises(Busy, match="is running a turn"):
        await stage.engine.compact(session_id)
    reader.go.set()

    assert isinstance(await compacting, Compacted)


async def test_a_session_in_the_trash_is_not_compacted(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    await stage.database.write(sessions.trash, session_id, at=1)

    with pytest.raises(NotFound, match="trash"):
        await stage.engine.compact(session_id)


# pins


async def test_promise_17_a_pinned_message_stays_verbatim_until_it_is_unpinned(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    _, entries = await stage.engine.read(session_id)
    seq = next(entry.seq for entry in entries if isinstance(entry.event, UserSaid))
    await stage.database.write(sessions.pin_message, session_id, seq, pinned=True, at=1)
    event = await stage.engine.compact(session_id)
    await stage.play(session_id, "Pinned?")
    pinned = reader.shown[-1].messages
    for number in range(12, 30):
        await stage.play(session_id, say(number))
    await stage.engine.compact(session_id)
    await stage.play(session_id, "Still pinned?")
    still = reader.shown[-1].messages
    await stage.database.write(sessions.pin_message, session_id, seq, pinned=False, at=1)
    await stage.play(session_id, "And now?")
    now = reader.shown[-1].messages

    assert isinstance(event, Compacted)
    assert event.pinned == (seq,)
    assert [messages[0].text for messages in (pinned, still)] == [say(0), say(0)]
    assert "but for those above" in pinned[1].text
    assert "Summary" in now[0].text


async def test_a_message_pinned_after_it_was_summarized_returns_to_the_context(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    await stage.engine.compact(session_id)
    await stage.database.write(sessions.pin_message, session_id, 3, pinned=True, at=1)
    await stage.play(session_id, "Do you see it?")

    assert reader.shown[-1].messages[0].text == say(0)


async def test_a_pinned_result_keeps_its_call_and_vice_versa(tmp_path: Path, stages: list[Stage]) -> None:
    def answer(request: ModelRequest) -> tuple[Part, ...]:
        looks = newest(request) == "Look" and request.messages[-1].role == "user"
        return (ToolCall("c1", "look"), ToolCall("c2", "look")) if looks else (Text("Fine."),)

    reader = Reader(WINDOW, answer)
    stages.append(stage := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting(keep_last=2)))
    session = await stage.session()
    await stage.play(session.id, "Look")
    for number in range(12):
        await stage.play(session.id, say(number))
    _, entries = await stage.engine.read(session.id)
    seq = next(entry.seq for entry in entries if entry.kind == "tool_ended")
    await stage.database.write(sessions.pin_message, session.id, seq, pinned=True, at=1)
    await stage.engine.compact(session.id)
    await stage.play(session.id, "Still there?")

    shown = reader.shown[-1].messages
    assert [message.role for message in shown[:4]] == ["assistant", "tool", "tool", "user"]
    assert not dangling(shown)


async def test_only_messages_can_be_pinned(tmp_path: Path, stages: list[Stage]) -> None:
    stage, session_id = await ready(tmp_path, stages, Reader(WINDOW))

    with pytest.raises(Invalid, match="event 1 is session_opened"):
        await stage.database.write(sessions.pin_message, session_id, 1, pinned=True, at=1)
    with pytest.raises(Invalid, match="there are events 1 to"):
        await stage.database.write(sessions.pin_message, session_id, 9_999, pinned=True, at=1)


# rewinds


async def test_a_rewind_before_a_compaction_undoes_the_compaction(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader)
    event = await stage.engine.compact(session_id)
    assert isinstance(event, Compacted)
    _, entries = await stage.engine.read(session_id)
    ends = [entry.seq for entry in entries if isinstance(entry.event, TurnEnded)]
    context = Context(entries)
    behind = context.undone_by(ends[-2])
    early: list[Event] = [*context.undone_by(ends[1]), Rewound(to_seq=ends[1])]
    await stage.database.write(log.append_unheld, session_id, early, at=1)
    await stage.play(session_id, "From here")
    session, _ = await stage.engine.read(session_id)

    assert behind == [], "it covers nothing that was rewound"
    assert early[0] == CompactionUndone(epoch=0)
    assert [message.text for message in reader.shown[-1].messages if message.role == "user"] == [
        say(0),
        say(1),
        "From here",
    ]
    assert session.summary.epoch == 0


# prompt caches


def openai_messages(request: ModelRequest) -> list[Any]:
    return openai_body(request)["messages"]  # type: ignore[return-value]


def anthropic_messages(request: ModelRequest) -> list[Any]:
    """Without the cache breakpoints, which move and are not part of the cached content."""
    body = anthropic_body(request)
    for message in body["messages"]:  # type: ignore[attr-defined]
        for block in message["content"] if isinstance(message["content"], list) else ():
            block.pop("cache_control", None)
    return [body["system"], *body["messages"]]  # type: ignore[misc]


@pytest.mark.parametrize("render", [openai_messages, anthropic_messages], ids=["openai", "anthropic"])
async def test_between_compactions_the_context_only_grows_at_its_end(
    tmp_path: Path, stages: list[Stage], render: Callable[[ModelRequest], list[Any]]
) -> None:
    def answer(request: ModelRequest) -> tuple[Part, ...]:
        looks = "4" in newest(request) and request.messages[-1].role == "user"
        return (ToolCall(f"c{len(reader.shown)}", "look"),) if looks else (Text("Fine."),)

    reader = Reader(2_000, answer)
    stages.append(stage := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting()))
    session = await stage.session()
    for number in range(80):
        await stage.play(session.id, say(number))
    # Another worker, which reads everything from the store, has the same context.
    other = await open_sqlite(tmp_path / "holdfast.db")
    stages.append(stage := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting(), database=other))
    for number in range(80, 84):
        await stage.play(session.id, say(number))
    compactions = sum(isinstance(event, Compacted) for event in await stage.log(session.id))

    breaks = 0
    for before, after in zip(reader.shown, reader.shown[1:], strict=False):
        kept = render(before)
        breaks += render(after)[: len(kept)] != kept
    assert compactions > 2
    assert breaks == compactions


async def test_the_lease_of_a_dead_worker_does_not_block(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    stage, session_id = await ready(tmp_path, stages, reader, who=gone())
    reader.go.clear()
    dying = asyncio.create_task(stage.engine.compact(session_id))
    await reader.asked.wait()
    stages.append(
        other := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting(), database=stage.database)
    )
    taking = asyncio.create_task(other.engine.compact(session_id))
    while (await stage.database.read(sessions.get, session_id)).lease_worker != other.worker_id:
        await asyncio.sleep(0)
    reader.go.set()
    with pytest.raises(LeaseLost):
        await dying

    assert isinstance(await taking, Compacted)
    assert sum(isinstance(event, Compacted) for event in await other.log(session_id)) == 1
