"""Equal requests of many pages share a response, which is never older than the request."""

import asyncio

import pytest

from holdfast.clock import SystemClock
from holdfast.dashboard.shared_responses import MAX_KEPT, SharedResponses


class Counter:
    """Makes a response, slowly, and counts how often."""

    def __init__(self) -> None:
        self.made = 0
        self.value = 0

    async def __call__(self) -> bytes:
        self.made += 1
        value = self.value
        await asyncio.sleep(0)
        return b"%d" % value


async def test_equal_requests_at_once_share_a_response() -> None:
    shared, counter = SharedResponses(SystemClock(), seconds=0.0), Counter()

    found = await asyncio.gather(*(shared.get("list", counter) for _ in range(500)))

    assert set(found) == {b"0"}
    assert counter.made == 1


async def test_a_request_after_a_change_gets_a_response_with_the_change() -> None:
    shared, counter = SharedResponses(SystemClock(), seconds=0.0), Counter()
    first = asyncio.ensure_future(shared.get("list", counter))
    while not counter.made:
        await asyncio.sleep(0)
    counter.value = 1

    later = await asyncio.gather(*(shared.get("list", counter) for _ in range(100)))

    assert (await first, set(later)) == (b"0", {b"1"})
    assert counter.made == 2


async def test_different_requests_get_different_responses() -> None:
    shared = SharedResponses(SystemClock(), seconds=60.0)

    async def make(name: bytes) -> bytes:
        return name

    names = [b"%d" % number for number in range(2 * MAX_KEPT)]
    assert await asyncio.gather(*(shared.get(name, lambda name=name: make(name)) for name in names)) == names  # type: ignore[misc] # bound by default


async def test_an_error_or_a_client_that_leaves_affects_only_one_request() -> None:
    shared, counter, entered = SharedResponses(SystemClock(), seconds=0.0), Counter(), asyncio.Event()

    async def fail() -> bytes:
        raise ValueError("no")

    async def hang() -> bytes:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError("never set")

    with pytest.raises(ValueError, match="no"):
        await shared.get("list", fail)
    leaving = asyncio.ensure_future(shared.get("list", hang))
    await entered.wait()
    waiting = asyncio.ensure_future(shared.get("list", counter))
    leaving.cancel()

    assert await waiting == b"0"
