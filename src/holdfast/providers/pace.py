"""How long a provider may keep silent."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import msgspec

from holdfast.model.errors import Unreachable

T = TypeVar("T")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    connect_seconds: float = 10.0
    first_seconds: float = 600.0
    """Until the first word: models that think in silence take minutes, and so do long contexts on small machines."""
    idle_seconds: float = 120.0
    """Between two pieces of a reply that has begun."""


LIMITS = Limits()


async def paced(stream: AsyncIterator[T], limits: Limits, who: str) -> AsyncGenerator[T, None]:
    """The items of the stream. Raises Unreachable when the next one keeps us waiting too long."""
    limit = limits.first_seconds
    while True:
        try:
            async with asyncio.timeout(limit):
                item = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError as e:
            raise silent(who, limit) from e
        yield item
        limit = limits.idle_seconds


def silent(who: str, seconds: float) -> Unreachable:
    return Unreachable(f"{who} sent nothing for {seconds:g} s: try again later or choose another model")


def unconnected(who: str) -> Unreachable:
    return Unreachable(f"the connection to {who} failed: check the address and the network, or try again later")
