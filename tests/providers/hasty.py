"""Closes the embedded model while it loads, as often as asked, on a single core: `python -m tests.providers.hasty 20`."""

import asyncio
import os
import sys

from holdfast.model.asking import Request
from holdfast.model.errors import Unreachable
from holdfast.model.message import Message, Text
from holdfast.providers.local import LocalProvider


async def ask_and_close() -> None:
    provider = LocalProvider(context=512)
    hello = Message(1, "user", (Text("Hello"),), at=1)

    async def listen() -> None:
        async for _ in provider.ask(Request(model="smollm2", system="", messages=(hello,), max_tokens=5)):
            pass

    asking = asyncio.create_task(listen())
    await asyncio.sleep(0.01)
    await provider.close()
    try:
        await asking
    except Unreachable:
        print("closed", flush=True)


if __name__ == "__main__":
    # Where threads take turns, that of the library is behind more often than not.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(int(sys.argv[1])):
        asyncio.run(ask_and_close())
