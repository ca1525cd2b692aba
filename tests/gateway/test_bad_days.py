"""Platforms that refuse, hang, bring things again or bring nonsense; and what is done about it, the whole way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.engine.together import stop
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.port import Attachment, Fate, Incoming, Later, Options, Outgoing, Platform
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.event import UserSaid
from holdfast.model.message import text_of
from holdfast.model.times import Clock
from holdfast.providers.scripted import Call, Step
from holdfast.store import aliases, inbox, outbox
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel, FakeConnection
from tests.fakes.clock import FakeClock
from tests.gateway.hall import Hall, no_index, opened, settings
from tests.gateway.test_platforms import PAYLOADS, READERS, places

DAY = 24 * 3600.0
Read = Callable[[str], Incoming]


@asynccontextmanager
async def reading(
    folder: Path, channel: FakeChannel, stage: Stage, read: Read, **options: object
) -> AsyncIterator[Hall]:
    """A gateway to a platform that understands its payloads in its own way, and has no files."""

    class Own(FakeConnection):
        def read(self, payload: str) -> Incoming:
            return read(payload)

        async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
            raise Unavailable("it is gone")

    @asynccontextmanager
    async def connect(given: Options, clock: Clock) -> AsyncIterator[Platform]:
        yield Own(channel)

    gateway = Gateway(stage.engine, settings(folder, **options), no_index, {"fake": connect})
    task = asyncio.create_task(gateway.work())
    try:
        yield Hall(stage, channel)
    finally:
        await stop(task)


async def settled(stage: Stage) -> None:
    """Until nothing waits in the inbox."""
    async with asyncio.timeout(50):
        while any(state != "dead" for _, state, _ in await stage.database.read(inbox.depths)):
            await asyncio.sleep(0.05)


async def test_what_was_not_understood_is_answered_after_a_fix_and_a_replay(tmp_path: Path) -> None:
    plain, channel = FakeConnection(FakeChannel()), FakeChannel()

    def old(payload: str) -> Incoming:
        if "poll" in payload:
            raise Invalid("a poll is not known here")
        return plain.read(payload)

    stage = await set_up(tmp_path, model="echo")
    async with reading(tmp_path, channel, stage, old) as hall:
        await channel.say("a poll: tea or coffee?", message="m1")
        await channel.say("hello", message="m2")
        assert await hall.replies(1) == ["You said: hello"]
    [dead] = await stage.database.read(inbox.dead, 10)
    async with reading(tmp_path, channel, stage, plain.read) as hall:
        await stage.database.write(inbox.replay, dead, at=1)
        await hall.replies(2)
        await channel.say("a poll: tea or coffee?", message="m1")  # the platform brings it once more
        await channel.say("bye", message="m3")
        replies = await hall.replies(3)

    assert (dead.chat, dead.outcome) == ("?", "a poll is not known here")
    assert replies == ["You said: hello", "You said: a poll: tea or coffee?", "You said: bye"]
    assert await stage.database.read(inbox.dead, 10) == []


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
async def test_a_flood_of_spoiled_payloads_stops_nothing(kind: str, tmp_path: Path) -> None:
    channel, plain = FakeChannel(), FakeConnection(FakeChannel())

    def read(payload: str) -> Incoming:
        return plain.read(payload) if "still there?" in payload else READERS[kind](payload)

    spoiled = 0
    for path in places(PAYLOADS[kind]):
        for junk in (None, 7, [], {"a": 1}, "a\0b", "\ud800"):
            payload = json.loads(json.dumps(PAYLOADS[kind]))
            inner = payload
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = junk
            await channel.posted.put(json.dumps(payload))
            spoiled += 1
    await channel.posted.put(b"\xff\xfe\x00")
    stage = await set_up(tmp_path, model="echo")
    async with reading(tmp_path, channel, stage, read, allow=["*"], groups="all") as hall:
        await channel.say("still there?")
        await channel.until(lambda: any("still there?" in text for text in channel.texts))
        await settled(stage)
        dead = await hall.dead()

    assert len(channel.acknowledged) == spoiled + 2
    assert len(dead) > 5
    assert all(letter.payload and letter.outcome for letter in dead)


async def test_a_message_that_comes_again_after_an_hour_and_a_restart_is_known(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    stage = await set_up(tmp_path, model="echo", clock=clock)
    async with opened(tmp_path, channel, stage=stage) as hall:
        await channel.say("once", message="m1")
        await hall.replies(1)
    clock.pass_seconds(3600)
    async with opened(tmp_path, channel, stage=stage) as hall:
        await channel.say("once", message="m1")
        await channel.say("other", message="m2")
        replies = await hall.replies(2)

    assert replies == ["You said: once", "You said: other"]


async def test_while_a_platform_takes_nothing_no_chat_troubles_it(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    channel.fates = [Later("locked out", after_seconds=60.0, everywhere=True)]
    stage = await set_up(tmp_path, model="echo", clock=clock)
    async with opened(tmp_path, channel, stage=stage) as hall:
        await channel.say("one", chat="c1")
        async with asyncio.timeout(20):
            while channel.fates:
                await asyncio.sleep(0.02)
            await channel.say("two", chat="c2")
            while len(await stage.database.read(outbox.heads, "fake")) < 2:
                await asyncio.sleep(0.02)
        assert not channel.arrived
        clock.pass_seconds(61)
        replies = await hall.replies(2)

    assert sorted(replies) == ["You said: one", "You said: two"]


async def test_a_platform_that_takes_nothing_for_three_days_is_given_up_and_the_reply_kept(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    channel.fates = [Later("away")]
    stage = await set_up(tmp_path, model="echo", clock=clock)
    await stage.database.write(
        outbox.put, "out-1", outbox.Address("fake", "c1"), outbox.Message(text="hi"), at=clock.now()
    )
    clock.pass_seconds(3 * DAY + 1)
    async with opened(tmp_path, channel, stage=stage) as hall:
        async with asyncio.timeout(20):
            while not (trouble := await hall.trouble()):
                await asyncio.sleep(0.02)
        await stage.database.write(outbox.replay, trouble[0], at=clock.now())
        replies = await hall.replies(1)

    assert [(row.state, row.error) for row in trouble] == [("failed", "given up after three days: away")]
    assert replies == ["hi"]


async def test_a_platform_that_hangs_leaves_a_doubt_and_holds_up_no_other_chat(tmp_path: Path) -> None:
    channel = FakeChannel(answer_seconds=0.3, tells_queued=False)
    hanging = ["c1"]

    class Hanging(FakeConnection):
        async def send(self, message: Outgoing) -> Fate:
            if message.chat in hanging:
                hanging.remove(message.chat)
                await asyncio.Event().wait()
            return await super().send(message)

    @asynccontextmanager
    async def connect(given: Options, clock: Clock) -> AsyncIterator[Platform]:
        yield Hanging(channel)

    stage = await set_up(tmp_path, model="echo")
    gateway = Gateway(stage.engine, settings(tmp_path), no_index, {"fake": connect})
    task = asyncio.create_task(gateway.work())
    await channel.say("one", chat="c1")
    await channel.say("two", chat="c2")
    await channel.until(lambda: len(channel.arrived) == 2)
    await stop(task)

    assert {message.chat: message.text for message in channel.arrived} == {
        "c1": "(This may be a repeat.) You said: one",
        "c2": "You said: two",
    }


async def test_signs_that_are_no_text_neither_stop_a_message_nor_its_reply(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with opened(tmp_path, channel) as hall:
        await channel.say("caf\udce9 \ud800", message="m1")
        replies = await hall.replies(1)

    assert replies == ["You said: caf? ?"]


@pytest.mark.parametrize(
    ("mode", "told", "turns"),
    [
        ("interrupt", "The turn that runs is ended; your words come next.", 2),
        ("steer", "Your words join the turn that runs.", 1),
    ],
)
async def test_words_during_a_turn_do_what_the_chat_has_chosen(
    tmp_path: Path, mode: str, told: str, turns: int
) -> None:
    channel = FakeChannel()
    steps = (Step(call=(Call("mail", {"to": "all"}),)), Step(say="one"), Step(say="two"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with opened(tmp_path, channel, *steps, stage=stage) as hall:
        await channel.say(f"/busy {mode}", message="m1")
        await hall.replies(1)
        await channel.say("first", message="m2")
        await hall.replies(2)
        await channel.say("second", message="m3")
        await channel.until(lambda: told in channel.texts)
        if mode == "steer":
            await channel.say("yes", message="m4")
        await channel.until(lambda: any(text in ("one", "two") for text in channel.texts))
        session_id = await hall.database.read(aliases.current, "fake:c1")
        log = await stage.log(str(session_id))
        said = {text_of(event.parts): event.turn_id for event in log if isinstance(event, UserSaid)}

    assert list(said) == ["first", "second"]
    assert len(set(said.values())) == turns
