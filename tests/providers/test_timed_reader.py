"""Reads with a time limit each, and one timer for all of them."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from holdfast.providers.timed_reader import TimedReader

FAR = 3_600.0


@pytest.fixture
async def content() -> aiohttp.StreamReader:
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.connection_made(asyncio.Transport())
    return aiohttp.StreamReader(protocol, 2**16, loop=asyncio.get_running_loop())


@pytest.fixture
async def reader(content: aiohttp.StreamReader) -> AsyncIterator[TimedReader]:
    opened = TimedReader(content)
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
