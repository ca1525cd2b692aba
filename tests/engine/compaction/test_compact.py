"""Promises 16 to 18: a long conversation in a small window. The id stays, nothing is lost, and the session can always continue."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.model.errors import Unavailable, Unreachable
from holdfast.model.event import Compacted, CompactionFailed, Event, ModelSaid, ToolEnded, TurnEnded, UserSaid
from holdfast.model.message import Part, Text, ToolCall, text_of
from holdfast.model.provider import ModelReply, ModelRequest
from holdfast.model.tool import ToolContext
from holdfast.store.repos import aliases, log, summary_chunks
from holdfast.store.search.index import open_index
from holdfast.tools.recall import RecallTool
from tests.engine.counting_model import Reader, dangling, newest, tokens, wrote
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

TURNS = 300
WINDOW = 4_000


def look_now_and_then(request: ModelRequest) -> tuple[Part, ...]:
    """Every third turn calls a tool before it answers."""
    if request.messages[-1].role == "tool":
        return (Text("A quiet place, then."),)
    said = newest(request)
    number = int(said.split()[1]) if said.startswith("Turn") else 0
    if number % 3 == 0:
        return (Text("Let me look."), ToolCall(f"call-{number}", "look"))
    return (Text(f"Noted {number}. " + "I shall think about it. " * 8),)


def said(number: int) -> str:
    return f"Turn {number} marker-{number:04} " + "something about the garden and the rain " * 4


async def ready(
    folder: Path, stages: list[Stage], reader: Reader, compacting: CompactionSettings | None = None
) -> Stage:
    stage = await set_up(folder, ask=reader.ask, compacting=compacting or reader.compacting())
    stages.append(stage)
    return stage


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("counts", [True, False], ids=["usage is known", "usage is not known"])
async def test_promises_16_to_18_three_hundred_turns_through_a_small_window(
    tmp_path: Path, stages: list[Stage], counts: bool
) -> None:
    reader = Reader(WINDOW, look_now_and_then, counts=counts)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session(title="Long")
    await stage.database.write(aliases.add, "old-name", session.id, at=1)
    for number in range(TURNS):
        events = await stage.play(session.id, said(number))
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].outcome == "done", events[-1].reason

    written = await stage.log(session.id)
    compactions = [event for event in written if isinstance(event, Compacted)]
    after, _ = await stage.engine.read(session.id)
    scene = ToolContext(session_id=session.id, turn_id="t", call_id="c", workdir=tmp_path, files=tmp_path)
    index = await open_index(tmp_path / "search.db", stage.database)
    await index.catch_up()

    assert reader.refused == 0, "never over the window"
    assert max(map(tokens, reader.shown)) <= WINDOW
    assert not [request for request in reader.shown if dangling(request.messages)]
    assert len(compactions) > 5
    assert [event.epoch for event in compactions] == list(range(1, len(compactions) + 1))
    assert all(event.tokens_after < event.tokens_before for event in compactions)
    assert (after.id, after.summary.epoch) == (session.id, len(compactions))
    assert_well_formed(written)
    for name in (session.id, session.id[:12], "old-name", "Long"):
        assert (await stage.session(ref=name)).id == session.id
    for number in range(TURNS):
        [found] = text_of(
            (await RecallTool(stage.database).run({"query": f"marker-{number:04}"}, scene)).parts
        ).splitlines()
        assert f"marker-{number:04}" in found
        hits = await index.search(f"marker-{number:04}", limit=2)
        assert [hit.session_id for hit in hits] == [session.id]
    await index.close()


# the model that writes summaries fails


def endless(request: ModelRequest) -> ModelReply:
    return wrote("and so on " * 80_000)


BAD_DAYS: dict[str, Callable[[ModelRequest], ModelReply]] = {
    "it says nothing": lambda request: wrote("  \n "),
    "it is cut off": lambda request: wrote("They talked about", finish="length"),
    "it writes 200,000 tokens": endless,
    "it calls a tool": lambda request: ModelReply(
        parts=(Text("Let me see."), ToolCall("c", "recall")), model="m", finish="tool_calls"
    ),
    "it refuses": lambda request: wrote("No.", finish="refused"),
}


async def conversation(stage: Stage, session_id: str, turns: int, *, first: int = 0) -> list[Event]:
    """Run that many turns, each of which must succeed; returns all their events."""
    events: list[Event] = []
    for number in range(first, first + turns):
        events += await stage.play(session_id, said(number))
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].outcome == "done", events[-1].reason
    return events


@pytest.mark.parametrize("bad", BAD_DAYS.values(), ids=BAD_DAYS.keys())
async def test_promise_18_an_invalid_summary_is_replaced_by_a_digest(
    tmp_path: Path, stages: list[Stage], bad: Callable[[ModelRequest], ModelReply]
) -> None:
    reader = Reader(WINDOW, look_now_and_then)
    reader.summary = bad
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()

    events = await conversation(stage, session.id, 60)

    compactions = [event for event in events if isinstance(event, Compacted)]
    assert {event.how for event in compactions} == {"digest"}
    assert "marker-0000" in compactions[-1].summary, "the first request"
    assert "→ ok" in compactions[-1].summary, "the command and its outcome"
    assert reader.refused == 0


async def test_promise_18_a_summary_that_hangs_times_out(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    reader.go.clear()
    stage = await ready(tmp_path, stages, reader, reader.compacting(timeout=0.05))
    session = await stage.session()

    events = await conversation(stage, session.id, 60)

    [first, *_] = [event for event in events if isinstance(event, Compacted)]
    assert first.how == "digest"


async def test_promise_18_another_model_continues_where_the_first_one_failed(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)

    def write(request: ModelRequest) -> ModelReply:
        if request.model == "first" and len(reader.summed_up) > 1:
            raise Unreachable("the line is cut")
        return reader.write(request)

    reader.summary = write
    windows = {"first": 1_600, "small": 1_200}
    author = msgspec.structs.replace(
        reader.compacting().author, models=("first", "small"), window_of=lambda model: windows[model]
    )
    compacting = msgspec.structs.replace(reader.compacting(), author=author)
    stage = await ready(tmp_path, stages, reader, compacting)
    session = await stage.session()

    events = await conversation(stage, session.id, 60)

    [first, *_] = [event for event in events if isinstance(event, Compacted)]
    assert (first.how, first.model) == ("summary", "small")
    assert [request.model for request in reader.summed_up[:3]] == ["first", "first", "small"]
    assert all(tokens(request) <= windows[request.model] for request in reader.summed_up)
    assert first.chunks > 1
    assert first.usage.tokens_out >= 10 * first.chunks


async def test_promise_18_with_refuse_no_digest_is_made_and_the_turn_says_why(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    reader.summary = lambda request: wrote("")
    stage = await ready(tmp_path, stages, reader, reader.compacting(on_failure="refuse"))
    session = await stage.session()
    events: list[Event] = []
    for number in range(100):
        events += await stage.play(session.id, said(number))
        if events[-1].outcome == "failed":
            break
    reader.summary = reader.write
    better = await conversation(stage, session.id, 1, first=200)

    failures = [event for event in events if isinstance(event, CompactionFailed)]
    assert {event.code for event in failures} == {"summary_failed"}
    assert len(failures) > 1, "it continued while there was room"
    assert "the summary is empty" in failures[0].reason
    assert not [event for event in events if isinstance(event, Compacted)]
    assert (events[-1].outcome, events[-1].code) == ("failed", "summary_failed")
    assert [event.how for event in better if isinstance(event, Compacted)] == ["summary"]
    assert reader.refused == 0


# meanwhile


async def waiting_for_summary(stage: Stage, reader: Reader, session_id: str) -> asyncio.Task[list[Event]]:
    """A turn that has to compact first and waits for the summary."""
    await conversation(stage, session_id, 18)
    reader.go.clear()
    number = 18
    while True:
        turn = asyncio.create_task(stage.play(session_id, said(number)))
        waiting = asyncio.create_task(reader.asked.wait())
        await asyncio.wait({turn, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            return turn
        waiting.cancel()
        number += 1


async def test_promise_18_ten_messages_during_a_compaction_wait_and_are_answered(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()
    turn = await waiting_for_summary(stage, reader, session.id)
    others = [asyncio.create_task(stage.play(session.id, f"Meanwhile {n}")) for n in range(10)]
    other = await stage.session()
    elsewhere = await stage.play(other.id, "Does anybody hear me?")
    reader.go.set()
    ends = [events[-1] for events in await asyncio.gather(turn, *others)]

    assert elsewhere[-1].outcome == "done", "no other session waits"
    assert {end.outcome for end in ends} == {"done"}
    asked = [text_of(event.parts) for event in await stage.log(session.id) if isinstance(event, UserSaid)]
    assert sorted(asked[-10:]) == [f"Meanwhile {n}" for n in range(10)]
    assert_well_formed(await stage.log(session.id))


async def test_a_compaction_is_interrupted_like_any_other_step(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(WINDOW)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()
    turn = await waiting_for_summary(stage, reader, session.id)
    assert await stage.engine.interrupt(session.id)
    events = await turn
    reader.go.set()
    after = await conversation(stage, session.id, 1, first=500)

    assert events[-1].outcome == "interrupted"
    assert not [event for event in events if isinstance(event, Compacted | CompactionFailed)]
    assert [event.how for event in after if isinstance(event, Compacted)] == ["summary"]


async def test_promise_18_a_worker_that_shuts_down_keeps_the_finished_chunks_for_the_next(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    author = msgspec.structs.replace(reader.compacting().author, window_of=lambda model: 1_300)
    compacting = msgspec.structs.replace(reader.compacting(), author=author)
    stage = await ready(tmp_path, stages, reader, compacting)
    session = await stage.session()
    turn = await waiting_for_summary(stage, reader, session.id)
    leaving = asyncio.create_task(stage.engine.drain(5))
    await asyncio.sleep(0)
    reader.go.set()
    await leaving
    with pytest.raises(Unavailable):
        await turn
    kept, upto = await stage.database.read(summary_chunks.get_progress, session.id)
    asked = list(reader.summed_up)
    stages.append(other := await set_up(tmp_path, ask=reader.ask, compacting=compacting, database=stage.database))
    await other.engine.resume(session.id)
    await other.engine.settled()
    written = await other.log(session.id)

    assert (kept, upto > 0) == (1, True), "the current chunk was finished, and no other started"
    again = [request.messages[0].text for request in reader.summed_up[len(asked) :]]
    assert asked[-1].messages[0].text not in again, "it was not requested twice"
    assert [event.how for event in written if isinstance(event, Compacted)] == ["summary"]
    assert next(event for event in written if isinstance(event, Compacted)).chunks == len(again) + 1
    assert written[-1].outcome == "done"
    assert await other.database.read(summary_chunks.get_progress, session.id) == (0, 0), "they are gone with the commit"


# difficult sizes


async def test_promise_18_a_message_larger_than_the_window_fails_its_own_turn_and_no_other(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()
    await conversation(stage, session.id, 3)
    failed = await stage.play(session.id, "Read this: " + "all of it " * 4_000)
    after = await conversation(stage, session.id, 20, first=10)

    assert (failed[-1].outcome, failed[-1].code) == ("failed", "context_too_long")
    assert "newest message alone" in failed[-1].reason
    assert not [event for event in failed if isinstance(event, Compacted | CompactionFailed)], (
        "it could not have helped"
    )
    assert after[0].__class__.__name__ == "TurnStarted"
    assert reader.refused == 0
    [first, *_] = [event for event in after if isinstance(event, Compacted)]
    assert first.how == "summary"


async def test_promise_18_a_result_larger_than_the_window_is_truncated_and_the_turn_continues(
    tmp_path: Path, stages: list[Stage]
) -> None:
    def answer(request: ModelRequest) -> tuple[Part, ...]:
        if newest(request) != "Look around" or request.messages[-1].role == "tool":
            return (Text("I see."),)
        return (Text("Let me look."), ToolCall("call-1", "look"))

    reader = Reader(WINDOW, answer)
    stage = await ready(tmp_path, stages, reader)
    stage.reader.says = "BEGIN " + "a wall of text " * 6_000 + "END"
    session = await stage.session()
    await conversation(stage, session.id, 3)
    events = await stage.play(session.id, "Look around")

    assert events[-1].outcome == "done"
    last = reader.shown[-1].messages
    assert [message.text for message in last if message.role == "user"][-1] == "Look around"
    shown = text_of(last[-1].parts)
    assert shown.startswith("BEGIN")
    assert shown.endswith("END")
    assert "recall(from_seq=" in shown
    assert not dangling(last)
    assert reader.refused == 0
    kept = next(event for event in events if isinstance(event, ToolEnded))
    assert len(text_of(kept.parts)) > 80_000, "the log has all of it"


async def test_promise_18_a_turn_that_outgrows_the_window_continues_with_its_question_whole(
    tmp_path: Path, stages: list[Stage]
) -> None:
    question = "How many walls are there? " + "Mind the small print. " * 10

    def answer(request: ModelRequest) -> tuple[Part, ...]:
        assert any(message.text == question for message in request.messages), "the question is always shown"
        answer.count += 1
        return (Text("Twelve."),) if answer.count > 12 else (ToolCall(f"c-{answer.count}", "look"),)

    answer.count = 0
    reader = Reader(WINDOW, answer)
    stage = await ready(tmp_path, stages, reader)
    stage.reader.says = "a wall " * 300
    session = await stage.session()
    events = await stage.play(session.id, question)

    compactions = [event for event in events if isinstance(event, Compacted)]
    assert events[-1].outcome == "done"
    assert compactions
    assert reader.refused == 0
    assert not [request for request in reader.shown if dangling(request.messages)]
    assert {event.turn_id for event in compactions} == {events[-1].turn_id}


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_promise_18_a_history_that_never_fitted_is_compacted(tmp_path: Path, stages: list[Stage]) -> None:
    many = 20_000
    reader = Reader(16_000)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()
    for start in range(0, many, 1_000):
        words: list[Event] = []
        for number in range(start, start + 1_000, 2):
            words.append(UserSaid(turn_id=f"turn-{number}", parts=(Text(said(number)),)))
            words.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text(f"Noted {number}."),)))
        await stage.database.write(log.append_unheld, session.id, words, at=start + 1)
    events = await stage.play(session.id, "Where were we?")

    [compacted] = [event for event in events if isinstance(event, Compacted)]
    assert events[-1].outcome == "done"
    assert reader.refused == 0
    assert compacted.chunks == len(reader.summed_up) > 20
    assert compacted.tokens_before > 20 * compacted.tokens_after
    assert len(reader.shown[-1].messages) <= 1 + 8


@pytest.mark.parametrize("window", [1_000, 2_000])
async def test_promise_18_a_tiny_window_is_sufficient(tmp_path: Path, stages: list[Stage], window: int) -> None:
    reader = Reader(window, look_now_and_then)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()

    await conversation(stage, session.id, 100)

    assert reader.refused == 0
    assert max(map(tokens, reader.shown)) <= window


# the provider rejects the context


@pytest.mark.parametrize("counts", [True, False], ids=["usage is known", "usage is not known"])
async def test_promise_18_a_context_that_the_provider_rejects_is_compacted(
    tmp_path: Path, stages: list[Stage], counts: bool
) -> None:
    reader = Reader(2_000, counts=counts)
    stage = await ready(tmp_path, stages, reader, reader.compacting(window=128_000))
    session = await stage.session()

    events = await conversation(stage, session.id, 200)

    compactions = [event for event in events if isinstance(event, Compacted)]
    assert 1 <= reader.refused <= 3, "it does not repeatedly get more than it accepts"
    assert compactions[0].refused_tokens > 0
    assert len(compactions) > 3


async def test_a_provider_that_rejects_everything_ends_the_turn_and_not_the_session(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()
    await conversation(stage, session.id, 10)
    reader.window = 10
    failed = await stage.play(session.id, "Still there?")
    reader.window = WINDOW
    after = await conversation(stage, session.id, 1)

    assert (failed[-1].outcome, failed[-1].code) == ("failed", "context_too_long")
    assert after[-1].outcome == "done"


# no thrashing


async def test_promise_18_a_compaction_without_gain_is_reported_and_not_retried_without_growth(
    tmp_path: Path, stages: list[Stage]
) -> None:
    reader = Reader(WINDOW, counts=False)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session(system="You are a gardener. " * 430)

    events = await conversation(stage, session.id, 60)

    tried = [event for event in events if isinstance(event, Compacted | CompactionFailed)]
    assert isinstance(tried[0], CompactionFailed)
    assert tried[0].code == "no_gain", "the system text takes most of the window"
    before = [event.tokens if isinstance(event, CompactionFailed) else event.tokens_before for event in tried]
    after = [event.tokens if isinstance(event, CompactionFailed) else event.tokens_after for event in tried]
    assert all(
        now >= then + WINDOW * 3 // 40 or now > WINDOW * 7 / 8 for then, now in zip(after, before[1:], strict=False)
    )
    assert len([event for event in tried if isinstance(event, Compacted)]) > 5, (
        "when it does not fit, it is made to fit"
    )
    assert reader.refused == 0


async def test_promise_18_within_one_turn_a_second_compaction_needs_growth(tmp_path: Path, stages: list[Stage]) -> None:
    def answer(request: ModelRequest) -> tuple[Part, ...]:
        answer.count += 1
        return (ToolCall(f"c-{answer.count}", "look"),) if answer.count % 6 else (Text("Done."),)

    answer.count = 0
    reader = Reader(WINDOW, answer)
    stage = await ready(tmp_path, stages, reader)
    session = await stage.session()
    for number in range(40):
        events = await stage.play(session.id, said(number))
        tried = [event for event in events if isinstance(event, Compacted | CompactionFailed)]
        assert len(tried) <= 1, "a turn is so short that it cannot need two"
