"""End to end: platforms that reject, hang, or send duplicates or malformed payloads."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.gateway.gateway import Gateway
from holdfast.gateway.port import Attachment, DeliveryResult, Incoming, Outgoing, Platform, PlatformOptions, RetryLater
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.event import UserSaid
from holdfast.model.message import text_of
from holdfast.model.times import Clock
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import aliases, inbox, outbox
from holdfast.tasks import stop
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel, FakeConnection
from tests.fakes.clock import FakeClock
from tests.gateway.gateway_fixture import GatewayFixture, no_index, run_gateway, serve, settings
from tests.gateway.test_platforms import PAYLOADS, READERS, places

DAY = 24 * 3600.0
Read = Callable[[str], Incoming]


@asynccontextmanager
async def reading(
    folder: Path, channel: FakeChannel, stage: Stage, read: Read, **options: object
) -> AsyncIterator[GatewayFixture]:
    """A gateway to a platform with its own parser and without files."""

    class Own(FakeConnection):
        def read(self, payload: str) -> Incoming:
            return read(payload)

        async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
            raise Unavailable("it is gone")

    @asynccontextmanager
    async def connect(given: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
        yield Own(channel)

    gateway = Gateway(stage.engine, settings(folder, **options), no_index, {"fake": connect})
    task = asyncio.create_task(serve(stage.engine, gateway))
    try:
        yield GatewayFixture(stage, channel)
    finally:
        await stop(task)


async def settled(stage: Stage) -> None:
    """Wait until the inbox is empty."""
    async with asyncio.timeout(50):
        while any(state != "dead" for _, state, _ in await stage.database.read(inbox.count_by_state)):
            await asyncio.sleep(0.05)


async def test_an_unparsed_message_is_answered_after_a_fix_and_a_replay(tmp_path: Path) -> None:
    plain, channel = FakeConnection(FakeChannel()), FakeChannel()

    def old(payload: str) -> Incoming:
        if "poll" in payload:
            raise Invalid("polls are not supported")
        return plain.read(payload)

    stage = await set_up(tmp_path, model="echo")
    async with reading(tmp_path, channel, stage, old) as fixture:
        await channel.say("a poll: tea or coffee?", message="m1")
        await channel.say("hello", message="m2")
        assert await fixture.replies(1) == ["You said: hello"]
    [dead] = await stage.database.read(inbox.list_dead, 10)
    async with reading(tmp_path, channel, stage, plain.read) as fixture:
        await stage.database.write(inbox.replay, dead, at=1)
        await fixture.replies(2)
        await channel.say("a poll: tea or coffee?", message="m1")  # the platform sends it again
        await channel.say("bye", message="m3")
        replies = await fixture.replies(3)

    assert (dead.chat, dead.outcome) == ("?", "polls are not supported")
    assert replies == ["You said: hello", "You said: a poll: tea or coffee?", "You said: bye"]
    assert await stage.database.read(inbox.list_dead, 10) == []


@pytest.mark.parametrize("kind", sorted(PAYLOADS))
async def test_many_malformed_payloads_block_nothing(kind: str, tmp_path: Path) -> None:
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
    async with reading(tmp_path, channel, stage, read, allow=["*"], groups="all") as fixture:
        await channel.say("still there?")
        await channel.until(lambda: any("still there?" in text for text in channel.texts))
        await settled(stage)
        dead = await fixture.dead()

    assert len(channel.acknowledged) == spoiled + 2
    assert len(dead) > 5
    assert all(message.payload and message.outcome for message in dead)


async def test_a_duplicate_after_an_hour_and_a_restart_is_recognised(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    stage = await set_up(tmp_path, model="echo", clock=clock)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        await channel.say("once", message="m1")
        await fixture.replies(1)
    clock.pass_seconds(3600)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        await channel.say("once", message="m1")
        await channel.say("other", message="m2")
        replies = await fixture.replies(2)

    assert replies == ["You said: once", "You said: other"]


async def test_no_chat_sends_while_the_platform_accepts_nothing(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    channel.results = [RetryLater("locked out", after_seconds=60.0, everywhere=True)]
    stage = await set_up(tmp_path, model="echo", clock=clock)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        await channel.say("one", chat="c1")
        async with asyncio.timeout(20):
            while channel.results:
                await asyncio.sleep(0.02)
            await channel.say("two", chat="c2")
            while len(await stage.database.read(outbox.list_heads, "fake")) < 2:
                await asyncio.sleep(0.02)
        assert not channel.arrived
        clock.pass_seconds(61)
        replies = await fixture.replies(2)

    assert sorted(replies) == ["You said: one", "You said: two"]


async def test_after_three_days_of_retries_a_reply_fails_and_is_kept(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    channel.results = [RetryLater("away")]
    stage = await set_up(tmp_path, model="echo", clock=clock)
    await stage.database.write(
        outbox.put, "out-1", outbox.Address("fake", "c1"), outbox.OutboundMessage(text="hi"), at=clock.now()
    )
    clock.pass_seconds(3 * DAY + 1)
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        async with asyncio.timeout(20):
            while not (undelivered := await fixture.undelivered()):
                await asyncio.sleep(0.02)
        await stage.database.write(outbox.replay, undelivered[0], at=clock.now())
        replies = await fixture.replies(1)

    assert [(row.state, row.error) for row in undelivered] == [("failed", "gave up after three days: away")]
    assert replies == ["hi"]


async def test_a_platform_that_hangs_makes_a_result_unknown_and_blocks_no_other_chat(tmp_path: Path) -> None:
    channel = FakeChannel(answer_seconds=0.3, tells_queued=False)
    hanging = ["c1"]

    class Hanging(FakeConnection):
        async def send(self, message: Outgoing) -> DeliveryResult:
            if message.chat in hanging:
                hanging.remove(message.chat)
                await asyncio.Event().wait()
            return await super().send(message)

    @asynccontextmanager
    async def connect(given: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
        yield Hanging(channel)

    stage = await set_up(tmp_path, model="echo")
    gateway = Gateway(stage.engine, settings(tmp_path), no_index, {"fake": connect})
    task = asyncio.create_task(serve(stage.engine, gateway))
    await channel.say("one", chat="c1")
    await channel.say("two", chat="c2")
    await channel.until(lambda: len(channel.arrived) == 2)
    await stop(task)

    assert {message.chat: message.text for message in channel.arrived} == {
        "c1": "(This may be a repeat.) You said: one",
        "c2": "You said: two",
    }


async def test_surrogates_block_neither_a_message_nor_its_reply(tmp_path: Path) -> None:
    channel = FakeChannel()
    async with run_gateway(tmp_path, channel) as fixture:
        await channel.say("caf\udce9 \ud800", message="m1")
        replies = await fixture.replies(1)

    assert replies == ["You said: caf? ?"]


@pytest.mark.parametrize(
    ("mode", "told", "turns"),
    [
        ("interrupt", "The running turn is being interrupted; your message is next.", 2),
        ("steer", "Your message was added to the running turn.", 1),
    ],
)
async def test_a_message_during_a_turn_follows_the_busy_mode_of_the_chat(
    tmp_path: Path, mode: str, told: str, turns: int
) -> None:
    channel = FakeChannel()
    steps = (ScriptStep(call=(ScriptedCall("mail", {"to": "all"}),)), ScriptStep(say="one"), ScriptStep(say="two"))
    stage = await set_up(tmp_path, *steps, approval_seconds=None)
    async with run_gateway(tmp_path, channel, *steps, stage=stage) as fixture:
        await channel.say(f"/busy {mode}", message="m1")
        await fixture.replies(1)
        await channel.say("first", message="m2")
        await fixture.replies(2)
        await channel.say("second", message="m3")
        await channel.until(lambda: told in channel.texts)
        if mode == "steer":
            await channel.say("yes", message="m4")
        await channel.until(lambda: any(text in ("one", "two") for text in channel.texts))
        session_id = await fixture.database.read(aliases.get_channel_session, "fake:c1")
        log = await stage.log(str(session_id))
        said = {text_of(event.parts): event.turn_id for event in log if isinstance(event, UserSaid)}

    assert list(said) == ["first", "second"]
    assert len(set(said.values())) == turns
