"""A platform's delay applies to the whole chat, in order, and is reported in the log, the home channel and the status."""

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.gateway.platforms import http
from holdfast.gateway.port import RetryLater
from holdfast.model.times import DAY, SECOND
from holdfast.store.repos import outbox
from holdfast.store.repos.outbox import MAX_DELAY, Address, OutboundMessage
from tests.engine.stage import set_up
from tests.fakes.channel import FakeChannel
from tests.fakes.clock import FakeClock
from tests.gateway.gateway_fixture import run_gateway


async def test_a_reply_delayed_by_an_hour_is_reported_and_later_ones_keep_their_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    channel, clock = FakeChannel(), FakeClock()
    stage = await set_up(tmp_path, model="echo", clock=clock)
    channel.results = [RetryLater("429: slow down", 3600.0)]
    with caplog.at_level(logging.WARNING):
        async with run_gateway(tmp_path, channel, stage=stage, home="fake:home") as fixture:
            await channel.say("one", chat="c1")
            [told] = await fixture.replies(1)
            await channel.say("two", chat="c1", message="m2")
            await channel.say("three", chat="c2", message="m3")
            await fixture.replies(2)
            [delayed] = await fixture.database.read(outbox.list_delayed_chats, clock.now(), 10)
            clock.pass_seconds(3601)
            await fixture.database.write(lambda tx: tx.notify(outbox.topic("fake")))
            replies = await fixture.replies(4)

    assert channel.arrived[0].chat == "home"
    assert told.startswith("! Messages to fake:c1 are delayed until ")
    assert "429: slow down" in told
    assert (delayed.platform, delayed.chat, delayed.reason) == ("fake", "c1", "429: slow down")
    assert delayed.until == clock.now() - SECOND
    assert replies[1:] == ["You said: three", "You said: one", "You said: two"]
    assert len([record for record in caplog.records if "are delayed until" in record.message]) == 1


async def test_a_delayed_home_channel_gets_no_notice_about_itself(tmp_path: Path) -> None:
    channel, clock = FakeChannel(), FakeClock()
    stage = await set_up(tmp_path, model="echo", clock=clock)
    channel.results = [RetryLater("429: slow down", 3600.0)]
    async with run_gateway(tmp_path, channel, stage=stage, home="fake:c1") as fixture:
        await channel.say("one")
        async with asyncio.timeout(20):
            while not (waiting := await fixture.database.read(outbox.list_delayed_chats, clock.now(), 10)):
                await asyncio.sleep(0.02)

    assert [(one.chat, one.waiting) for one in waiting] == [("c1", 1)]
    assert channel.arrived == []


async def test_a_due_time_from_a_wrong_clock_delays_nothing(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, model="echo", clock=FakeClock())
    now = stage.engine.services.clock.now()
    await stage.database.write(outbox.put, "out-1", Address("fake", "c1"), OutboundMessage(text="x"), at=now + 2 * DAY)
    [fresh] = await stage.database.read(outbox.list_heads, "fake")

    def tried(due: int) -> float:
        from msgspec.structs import replace

        return replace(fresh, attempts=1, due_at=due).wait_seconds(now)

    assert fresh.wait_seconds(now) == 0, "never attempted"
    assert tried(now + 2 * MAX_DELAY) == 0
    assert tried(now + 5 * SECOND) == 5
    assert tried(now - 1) == 0
    await stage.database.close()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("3600", 3600.0), ("0.5", 0.5), ("-3", 0.0), ("inf", None), ("nan", None), ("1e999", None), ("soon", None), (None, None), ("", None)],
)  # fmt: skip
def test_retry_after_is_a_number_or_none(given: str | None, seconds: float | None) -> None:
    assert http.parse_retry_after(given) == seconds
