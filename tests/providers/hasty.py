"""Closes the embedded model while it loads, as often as asked, on a single core: `python -m tests.providers.hasty 20`."""

import asyncio
import os
import sys

from holdfast.model.errors import Unreachable
from holdfast.model.message import Message, Text
from holdfast.model.provider import ModelRequest
from holdfast.providers.local.provider import LocalProvider


async def ask_and_close() -> None:
    provider = LocalProvider(context=512)
    hello = Message(1, "user", (Text("Hello"),), at=1)

    async def listen() -> None:
        async for _ in provider.ask(ModelRequest(model="smollm2", system="", messages=(hello,), max_tokens=5)):
            pass

    asking = asyncio.create_task(listen())
    await asyncio.sleep(0.01)
    await provider.close()
    try:
        await asking
    except Unreachable:
        print("closed", flush=True)


if __name__ == "__main__":
    # On a single core, the thread of the library is usually behind.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(int(sys.argv[1])):
        asyncio.run(ask_and_close())
