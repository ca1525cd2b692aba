"""Uses one HoldfastSession in a process and then in a fork of it. Prints what the session has after that."""

import asyncio
import os
import sys

from holdfast.adapters.openai_agents import HoldfastSession


async def add(session: HoldfastSession, text: str) -> None:
    await session.add_items([{"role": "user", "content": text}])
    await session.release()


def main(url: str, name: str) -> None:
    session = HoldfastSession(name, url)
    asyncio.run(add(session, "parent"))
    pid = os.fork()
    if pid == 0:
        asyncio.run(add(session, "child"))
        os._exit(0)
    os.waitpid(pid, 0)
    print(*(item["content"] for item in asyncio.run(session.get_items())), flush=True)  # type: ignore[typeddict-item]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
