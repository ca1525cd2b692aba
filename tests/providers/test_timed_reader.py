"""Reads with a time limit each, and one timer for all of them."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from holdfast.providers.timed_reader import LONGEST_PAUSE, READS_PER_SECOND, ReadPace, TimedReader

FAR = 3_600.0


@pytest.fixture
async def content() -> aiohttp.StreamReader:
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.connection_made(asyncio.Transport())
    return aiohttp.StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())


@pytest.fixture
def pace() -> ReadPace:
    return ReadPace()


@pytest.fixture
async def reader(content: aiohttp.StreamReader, pace: ReadPace) -> AsyncIterator[TimedReader]:
    opened = TimedReader(content, pace)
    yield opened
    opened.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_read_that_takes_too_long_fails(reader: TimedReader) -> None:
    with pytest.raises(TimeoutError):
        await reader.read(now() + 0.01)


async def test_an_earlier_limit_counts_at_once(content: aiohttp.StreamReader, reader: TimedReader) -> None:
    content.feed_data(b"first")
    assert await reader.read(now() + FAR) == b"first"

    with pytest.raises(TimeoutError):
        await reader.read(now() + 0.01)


async def test_a_timer_that_fires_before_the_limit_of_a_later_read_does_not_end_it(
    content: aiohttp.StreamReader, reader: TimedReader
) -> None:
    content.feed_data(b"first")
    soon = now() + 0.01
    assert await reader.read(soon) == b"first"
    second = asyncio.ensure_future(reader.read(soon + FAR))
    while reader._fires_at == soon:
        await asyncio.sleep(0)
    content.feed_data(b"second")

    assert await second == b"second"


async def test_no_time_counts_between_two_reads(content: aiohttp.StreamReader, reader: TimedReader) -> None:
    content.feed_data(b"first")
    assert await reader.read(now() + 0.01) == b"first"
    while reader._timer is not None:
        await asyncio.sleep(0)
    content.feed_data(b"second")

    assert await reader.read(now() + FAR) == b"second"


def test_few_streams_are_read_at_once_and_many_in_turn(pace: ReadPace) -> None:
    pace.streams = 49
    assert pace.pause == 0
    pace.streams = 1_000
    assert pace.pause * READS_PER_SECOND == 1_000
    pace.streams = 100_000
    assert pace.pause == LONGEST_PAUSE


async def test_what_arrives_while_a_stream_pauses_is_read_together(
    content: aiohttp.StreamReader, reader: TimedReader, pace: ReadPace
) -> None:
    pace.streams = 100
    content.feed_data(b"one ")
    assert await reader.read(now() + FAR) == b"one "
    second = asyncio.ensure_future(reader.read(now() + FAR))
    for word in (b"two ", b"three ", b"four"):
        content.feed_data(word)
        await asyncio.sleep(0)

    assert await second == b"two three four"


async def test_the_end_of_a_response_ends_the_pause(
    content: aiohttp.StreamReader, reader: TimedReader, pace: ReadPace
) -> None:
    pace.streams = 100
    content.feed_data(b"one ")
    await reader.read(now() + FAR)
    reader._next_at = now() + FAR
    second = asyncio.ensure_future(reader.read(now() + 2 * FAR))
    await asyncio.sleep(0)
    content.feed_data(b"two")
    content.feed_eof()

    assert await second == b"two"
    assert await reader.read(now() + FAR) == b""


async def test_a_closed_stream_no_longer_slows_the_others_down(content: aiohttp.StreamReader, pace: ReadPace) -> None:
    reader = TimedReader(content, pace)
    assert pace.streams == 1
    reader.close()

    assert pace.streams == 0
