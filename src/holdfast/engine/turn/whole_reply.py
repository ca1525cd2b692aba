"""Asks a model for a whole reply, without streaming it."""

import asyncio
from contextlib import aclosing

from holdfast.model.errors import BadReply, Unreachable
from holdfast.model.provider import AskModel, ModelReply, ModelRequest


async def ask_for_reply(ask: AskModel, request: ModelRequest, *, seconds: float) -> ModelReply:
    """The whole reply. Raises Unreachable after that time, BadReply for a stream without an end, and what the model raises."""
    try:
        async with asyncio.timeout(seconds), aclosing(ask(request)) as stream:  # type: ignore[type-var] # every provider's stream is an async generator
            async for item in stream:
                if isinstance(item, ModelReply):
                    return item
    except TimeoutError as e:
        raise Unreachable(f"the model did not reply within {seconds:.0f} s") from e
    raise BadReply("the model's reply has no end")
