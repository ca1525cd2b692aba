"""`python -m bench.dashboard_watchers URL KEY NUMBER`: so many open lists of the dashboard, which do what the page's script does.

Each holds a live stream, and reloads its list when the store has changed, at most every 1.5 s. It prints a line when all
streams are open, and ends when standard input ends.
"""

import asyncio
import sys
import time

import httpx2

RELOAD_SECONDS = 1.5
PARTIAL = {"hx-request": "true", "hx-request-type": "partial"}
COUNT_SECONDS = 4.0


async def watch(client: httpx2.AsyncClient, opened: asyncio.Semaphore) -> None:
    """One open page."""
    due = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_reload(client, due))
        tasks.create_task(_count(client))
        async with client.stream("GET", "/ui/live?pulse=1") as stream:
            opened.release()
            async for line in stream.aiter_lines():
                if '"pulse"' in line:
                    due.set()


async def _reload(client: httpx2.AsyncClient, due: asyncio.Event) -> None:
    while True:
        await due.wait()
        due.clear()
        start = time.monotonic()
        (await client.get("/", headers=PARTIAL)).raise_for_status()
        await asyncio.sleep(max(0.0, start + RELOAD_SECONDS - time.monotonic()))


async def _count(client: httpx2.AsyncClient) -> None:
    while True:
        (await client.get("/ui/questions/count")).raise_for_status()
        await asyncio.sleep(COUNT_SECONDS)


async def main(url: str, key: str, number: int) -> None:
    limits = httpx2.Limits(max_connections=3 * number + 10)
    opened = asyncio.Semaphore(0)
    async with httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        assert (await client.post("/ui/login", data={"key": key})).status_code == 303
        pages = [asyncio.ensure_future(watch(client, opened)) for _ in range(number)]
        for _ in pages:
            await opened.acquire()
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for page in pages:
            page.cancel()
        await asyncio.wait(pages)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
