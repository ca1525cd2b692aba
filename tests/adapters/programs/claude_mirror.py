"""Appends entries to one transcript, some of them twice, until it is killed. Prints the number of each that has returned."""

import asyncio
import itertools
import sys
from typing import Any

from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore

KEY: Any = {"project_key": "-work", "session_id": "s-1"}


async def main(url: str, name: str) -> None:
    store = HoldfastSessionStore(url)
    found = await store.load(KEY) or []
    first = sum(str(one["uuid"]).startswith(name) for one in found)
    for number in itertools.count(first):
        entries: Any = [{"type": "x", "uuid": f"{name}-{n}"} for n in range(max(0, number - 2), number + 1)]
        await store.append(KEY, entries)
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
