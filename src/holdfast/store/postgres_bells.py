"""News between processes on PostgreSQL: LISTEN and NOTIFY behind `Database.listen`.

Those in this process are woken at once, after the commit. Those in others are told by a NOTIFY that is sent after
the commit, not with it: PostgreSQL lets only one transaction with a notice commit at a time, flush included, and all
appends would queue there. A process that dies in between has told nobody, and a line may break; so every bell is
rung when the line is back, and now and then besides. A wake-up is a hint. The first news go out at once; those that
come close behind are told together, because a notice costs the server a third of what an append does.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from holdfast.store.postgres_connection import Link, named, shut

log = logging.getLogger(__name__)

RING_SECONDS = 10.0
"""How late a listener may be at worst, when the notice was lost."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
GATHER_SECONDS = 0.02
"""How close behind each other notices are sent at most."""


class Bells:
    """Who listens, and how they are told. `connect` raises psycopg's errors."""

    def __init__(self, connect: Callable[[], Link], where: str) -> None:
        self._connect = connect
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._tuner = ThreadPoolExecutor(1, thread_name_prefix="holdfast-listen")
        self._ear: Link | None = None
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="holdfast-notify")
        self._lock = threading.Lock()
        self._untold: set[str] = set()
        self._link: Link | None = None
        self._sent = 0.0
        self._closing = threading.Event()

    def add(self, topic: str) -> asyncio.Event:
        bell = asyncio.Event()
        self._bells.setdefault(topic, set()).add(bell)
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="holdfast-listen")
        return bell

    def discard(self, topic: str, bell: asyncio.Event) -> None:
        self._bells[topic].discard(bell)
        if not self._bells[topic]:
            del self._bells[topic]

    def tell(self, topics: Iterable[str]) -> None:
        """Wake everybody, here and elsewhere. From any thread, after the commit."""
        with self._lock:
            idle = not self._untold
            self._untold.update(topics)
            if idle and self._untold:
                self._sender.submit(self._send)
        if heard := [topic for topic in topics if topic in self._bells]:
            self._loop.call_soon_threadsafe(self._ring, heard)

    def hang_up(self) -> None:
        """The store has another server: listen there, and tell there. From any thread."""
        for link in (self._ear, self._link):
            if link is not None and not link.closed:
                shut(link)

    async def close(self) -> None:
        """Tell what is still to be told, and wake all who listen, for the last time."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        self._ring_all()
        self._closing.set()
        await asyncio.to_thread(self._hang_up)

    def _hang_up(self) -> None:
        self._tuner.shutdown()
        self._sender.shutdown()
        for link in (self._ear, self._link):
            if link is not None:
                link.close()

    def _ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for bell in self._bells.get(topic, ()):
                bell.set()

    def _ring_all(self) -> None:
        self._ring(tuple(self._bells))

    # The sender's thread.

    def _send(self) -> None:
        self._closing.wait(max(0.0, self._sent + GATHER_SECONDS - time.monotonic()))
        self._sent = time.monotonic()
        with self._lock:
            topics, self._untold = sorted(self._untold), set()
        for attempt in (1, 2):
            try:
                if self._link is None or self._link.closed:
                    self._link = self._connect()
                self._link.execute(named("driver.notify"), {"topics": topics})
            except psycopg.Error as e:
                if self._link is not None:
                    self._link.close()
                log.log(logging.DEBUG if attempt == 1 else logging.WARNING, "others are told late of news: %s", e)
            else:
                return

    # The event loop's side.

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                link = await self._loop.run_in_executor(self._tuner, self._tune_in)
                pause = FIRST_PAUSE
                await self._hear(link)
            except psycopg.Error as e:
                log.warning("no news from %s for the moment: %s", self._where, str(e).strip().partition("\n")[0])
            self._ring_all()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _tune_in(self) -> Link:
        if self._ear is not None:
            self._ear.close()
        self._ear = self._connect()
        self._ear.execute(named("driver.listen"))
        return self._ear

    async def _hear(self, link: Link) -> None:
        """Ring for what comes. At the start, and now and then, for everybody: something may have come before, or got lost."""
        readable = asyncio.Event()
        descriptor = link.fileno()
        self._loop.add_reader(descriptor, readable.set)
        try:
            while True:
                self._ring_all()
                try:
                    async with asyncio.timeout(RING_SECONDS):
                        await self._hear_one_by_one(link, readable)
                except TimeoutError:
                    continue
        finally:
            self._loop.remove_reader(descriptor)

    async def _hear_one_by_one(self, link: Link, readable: asyncio.Event) -> None:
        while True:
            readable.clear()
            ours = self._link.info.backend_pid if self._link is not None and not self._link.closed else None
            self._ring([notice.payload for notice in link.notifies(timeout=0) if notice.pid != ours])
            await readable.wait()
