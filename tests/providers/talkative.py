"""Asks the embedded model for a long story, and says how far it is: `python -m tests.providers.talkative`."""

import asyncio

from holdfast.model.message import Message, Text
from holdfast.model.provider import ModelRequest
from holdfast.providers.local.provider import LocalProvider


async def listen() -> None:
    provider = LocalProvider(context=8192)
    said = Message(1, "user", (Text("Tell me a very long story."),), at=1)
    request = ModelRequest(model="smollm2", system="", messages=(said,), max_tokens=8000)
    reply = provider.ask(request)
    first = asyncio.ensure_future(anext(reply))
    await asyncio.sleep(0)
    print("asked", flush=True)
    await first
    print("answering", flush=True)
    async for _ in reply:
        pass


if __name__ == "__main__":
    asyncio.run(listen())
