"""The parts of a stream, without a server."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from holdfast.api.reply import Reply, frame
from holdfast.api.stream import event
from holdfast.engine.bus import MAX_UNREAD, Live, Subscription
from holdfast.eventstream import with_heartbeats
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, TurnEnded, UserSaid
from holdfast.model.ids import TURN, Ids
from holdfast.model.message import Text
from tests.fakes.clock import FakeClock


async def test_a_silent_stream_says_that_it_is_alive() -> None:
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


async def test_leaving_a_stream_closes_what_it_told_of() -> None:
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
    assert event({"a": "x\ny"}, name="delta", id="7") == b'id: 7\nevent: delta\ndata: {"a":"x\\ny"}\n\n'


def live(text: str, kind: str = "text") -> Live:
    return Live("t", kind, text)  # type: ignore[arg-type]


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
def test_every_word_is_told_once(situation: str, items: list[Entry | Live], told: str) -> None:
    reply = Reply()

    pieces = [reply.add(item) for item in items]

    assert "".join(pieces) == reply.text == told


def test_one_who_joins_in_the_middle_hears_only_whole_replies() -> None:
    reply = Reply(hears_live=False)

    pieces = [reply.add(item) for item in (live("llo."), said("Hello."), live("Wor"), said("World."))]

    assert pieces == ["", "Hello.", "", "\n\nWorld."]


def test_a_reply_ends_as_the_turn_did() -> None:
    reply = Reply()
    reply.add(Entry(4, 0, ModelSaid(turn_id="t", parts=(Text("x"),), finish="length")))
    reply.add(Entry(5, 0, TurnEnded(turn_id="t", outcome="done")))

    assert (reply.seq, reply.finish, reply.calls) == (5, "length", ())


def test_the_time_of_a_reply_is_that_of_its_turn() -> None:
    clock = FakeClock()
    turn_id = Ids(clock.now).make(TURN)

    assert frame(turn_id, "m").created == clock.now() // 1_000_000
    assert frame(turn_id, "m") == frame(turn_id, "m")


async def test_nothing_piles_up_for_one_who_does_not_read() -> None:
    slow = Subscription()
    for seq in range(1, 3 * MAX_UNREAD):
        slow.put(Entry(seq, 0, UserSaid(turn_id="t", parts=(Text("x"),))))
        slow.put(live("word"))

    kept = 0
    while slow.take() is not None:
        kept += 1
    assert kept <= MAX_UNREAD + 1
    assert await slow.wait(), "the rest is in the store"


async def test_words_after_a_gap_are_left_out_until_the_next_reply() -> None:
    slow = Subscription()
    for seq in range(1, MAX_UNREAD + 2):
        slow.put(Entry(seq, 0, UserSaid(turn_id="t", parts=(Text("x"),))))
    slow.put(live("the middle of a reply"))
    slow.put(said("The whole reply.", MAX_UNREAD + 2))
    slow.put(live("The next"))

    left = []
    while (item := slow.take()) is not None:
        left.append(item)
    assert [item.text for item in left if isinstance(item, Live)] == ["The next"]
