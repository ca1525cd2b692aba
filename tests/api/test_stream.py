"""The parts of a stream, without a server."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from holdfast.api.openai.reply import ReplyState, chunk_fields
from holdfast.engine.streaming.bus import MAX_UNREAD, LiveText, Subscription
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, TurnEnded, UserSaid
from holdfast.model.ids import TURN, Ids
from holdfast.model.message import Text
from holdfast.sse import format_event, with_heartbeats
from tests.fakes.clock import FakeClock


async def test_a_silent_stream_sends_heartbeats() -> None:
    go_on = asyncio.Event()
    closed = asyncio.Event()

    async def items() -> AsyncGenerator[str, None]:
        try:
            yield "one"
            await go_on.wait()
            yield "two"
        finally:
            closed.set()

    seen: list[str | None] = []
    async for item in with_heartbeats(items(), 0.01):
        seen.append(item)
        if seen.count(None) == 3:
            go_on.set()

    assert seen[0] == "one" and seen[-1] == "two"
    assert seen.count(None) >= 3
    assert closed.is_set()


async def test_closing_a_stream_closes_its_source() -> None:
    closed = asyncio.Event()

    async def items() -> AsyncGenerator[str, None]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            closed.set()

    beats = with_heartbeats(items(), 0.01)
    assert await anext(beats) == "one"
    assert await anext(beats) is None
    await beats.aclose()

    assert closed.is_set()


def test_an_event_is_one_line_of_json() -> None:
    assert format_event({"a": "x\ny"}, name="delta", id="7") == b'id: 7\nevent: delta\ndata: {"a":"x\\ny"}\n\n'


def live(text: str, kind: str = "text") -> LiveText:
    return LiveText("t", kind, text)  # type: ignore[arg-type]


def said(text: str, seq: int = 1, *, partial: bool = False) -> Entry:
    return Entry(seq, 0, ModelSaid(turn_id="t", parts=(Text(text),), partial=partial))


TOLD = [
    ("live words, then their commit", [live("Hel"), live("lo."), said("Hello.")], "Hello."),
    ("nothing live", [said("Hello.")], "Hello."),
    ("live words that were missed at the end", [live("Hel"), said("Hello.")], "Hello."),
    ("live words that come after their commit", [said("Hello."), live("Hel"), live("lo.")], "Hello."),
    ("two replies", [live("One."), said("One."), live("Two."), said("Two.")], "One.\n\nTwo."),
    ("white space first", [live("One."), said("One."), live(" "), live("Two."), said(" Two.")], "One.\n\n Two."),
    ("a blank reply", [said("One."), said(" "), said("Two.")], "One.\n\nTwo."),
    ("a new attempt", [live("Ein"), live("", "restarted"), live("One."), said("One.")], "Ein\n\nOne."),
    ("a reply that came out otherwise", [live("Ein"), said("One.")], "Ein\n\nOne."),
    ("a part of a reply from before a crash", [said("On", partial=True), said("One.")], "One."),
    ("thoughts", [live("hm", "reasoning"), live("One."), said("One.")], "One."),
]


@pytest.mark.parametrize(("situation", "items", "told"), TOLD, ids=[row[0] for row in TOLD])
def test_every_character_is_sent_once(situation: str, items: list[Entry | LiveText], told: str) -> None:
    reply = ReplyState()

    pieces = [reply.add(item) for item in items]

    assert "".join(pieces) == reply.text == told


def test_a_late_subscriber_gets_only_complete_replies() -> None:
    reply = ReplyState(receives_live=False)

    pieces = [reply.add(item) for item in (live("llo."), said("Hello."), live("Wor"), said("World."))]

    assert pieces == ["", "Hello.", "", "\n\nWorld."]


def test_the_finish_reason_follows_the_outcome_of_the_turn() -> None:
    reply = ReplyState()
    reply.add(Entry(4, 0, ModelSaid(turn_id="t", parts=(Text("x"),), finish="length")))
    reply.add(Entry(5, 0, TurnEnded(turn_id="t", outcome="done")))

    assert (reply.seq, reply.finish, reply.calls) == (5, "length", ())


def test_the_time_of_a_reply_is_that_of_its_turn() -> None:
    clock = FakeClock()
    turn_id = Ids(clock.now).make(TURN)

    assert chunk_fields(turn_id, "m").created == clock.now() // 1_000_000
    assert chunk_fields(turn_id, "m") == chunk_fields(turn_id, "m")


async def test_nothing_accumulates_for_a_client_that_does_not_read() -> None:
    slow = Subscription()
    for seq in range(1, 3 * MAX_UNREAD):
        slow.put(Entry(seq, 0, UserSaid(turn_id="t", parts=(Text("x"),))))
        slow.put(live("word"))

    kept = 0
    while slow.take() is not None:
        kept += 1
    assert kept <= MAX_UNREAD + 1
    assert await slow.wait(), "the rest is in the store"


async def test_live_text_after_a_gap_is_omitted_until_the_next_reply() -> None:
    slow = Subscription()
    for seq in range(1, MAX_UNREAD + 2):
        slow.put(Entry(seq, 0, UserSaid(turn_id="t", parts=(Text("x"),))))
    slow.put(live("the middle of a reply"))
    slow.put(said("The whole reply.", MAX_UNREAD + 2))
    slow.put(live("The next"))

    left = []
    while (item := slow.take()) is not None:
        left.append(item)
    assert [item.text for item in left if isinstance(item, LiveText)] == ["The next"]
