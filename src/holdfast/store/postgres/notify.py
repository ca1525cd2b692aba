"""Notifications between processes on PostgreSQL: LISTEN and NOTIFY, for `Database.listen`.

Listeners in this process are woken right after the commit. Other processes get a NOTIFY that is sent after the commit,
not inside the transaction: PostgreSQL commits transactions with notifications one at a time, flush included, so all
appends would queue there. A process that dies in between notifies nobody, and a connection may break; therefore all
listeners are also woken after each reconnect and periodically. A wake-up is a hint. The first notification is sent at once;
further ones shortly after it are sent together, because a notification costs the server a third of an append.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from holdfast.store.notifications import TopicListeners
from holdfast.store.postgres.connection import Link, break_connection, named
from holdfast.supervisor import BackgroundTask, Completed, Supervisor
from holdfast.tasks import stop

log = logging.getLogger(__name__)

WAKE_SECONDS = 10.0
"""The longest delay of a listener whose notification was lost."""
GATHER_SECONDS = 0.02
"""The shortest time between two notifications."""


class Notifier:
    """Wakes the listeners of this and of other processes. `connect` raises psycopg's errors."""

    def __init__(self, connect: Callable[[], Link], where: str, supervisor: Supervisor) -> None:
        self._connect = connect
        self._supervisor = supervisor
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._listeners = TopicListeners()
        self._listener: asyncio.Task[None] | None = None
        self._listen_thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-listen")
        self._listening: Link | None = None
        self._send_thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-notify")
        self._lock = threading.Lock()
        self._unsent: set[str] = set()
        self._sending: Link | None = None
        self._sent = 0.0
        self._closing = threading.Event()

    @property
    def listeners(self) -> TopicListeners:
        """The listeners of this process. The first use starts listening to other processes."""
        if self._listener is None:
            self._listener = self._supervisor.start("store listener", BackgroundTask(self._listen, WAKE_SECONDS))
        return self._listeners

    def notify(self, topics: Iterable[str]) -> None:
        """Wake the listeners of these topics, here and in other processes. Call it after the commit. Thread-safe."""
        with self._lock:
            idle = not self._unsent
            self._unsent.update(topics)
            if idle and self._unsent:
                self._send_thread.submit(self._send)
        if heard := [topic for topic in topics if topic in self._listeners]:
            self._loop.call_soon_threadsafe(self._listeners.notify, heard)

    def disconnect(self) -> None:
        """Break both connections after a failover, so that they are opened to the new server. Thread-safe."""
        for link in (self._listening, self._sending):
            if link is not None and not link.closed:
                break_connection(link)

    async def close(self) -> None:
        """Send what is pending, and wake all listeners for the last time."""
        if self._listener is not None:
            await stop(self._listener)
        self._listeners.close()
        self._closing.set()
        await asyncio.to_thread(self._close_connections)

    def _close_connections(self) -> None:
        self._listen_thread.shutdown()
        self._send_thread.shutdown()
        for link in (self._listening, self._sending):
            if link is not None:
                link.close()

    # On the sending thread.

    def _send(self) -> None:
        self._closing.wait(max(0.0, self._sent + GATHER_SECONDS - time.monotonic()))
        self._sent = time.monotonic()
        with self._lock:
            topics, self._unsent = sorted(self._unsent), set()
        for attempt in (1, 2):
            try:
                if self._sending is None or self._sending.closed:
                    self._sending = self._connect()
                self._sending.execute(named("driver.notify"), {"topics": topics})
            except (psycopg.Error, OSError) as e:
                if self._sending is not None:
                    self._sending.close()
                log.log(
                    logging.DEBUG if attempt == 1 else logging.WARNING,
                    "a notification failed; listeners of other processes wake up late: %s",
                    e,
                )
            else:
                return

    # On the event loop.

    async def _listen(self, completed: Completed) -> None:
        """Listen until the connection breaks, then wake all listeners: notifications may have been missed."""
        try:
            link = await self._loop.run_in_executor(self._listen_thread, self._start_listening)
            await self._receive(link, completed)
        finally:
            self._listeners.notify_all()

    def _start_listening(self) -> Link:
        if self._listening is not None:
            self._listening.close()
        self._listening = self._connect()
        self._listening.execute(named("driver.listen"))
        return self._listening

    async def _receive(self, link: Link, completed: Completed) -> None:
        """Wake listeners on notifications. Wake all at the start and periodically: notifications may have been missed."""
        readable = asyncio.Event()
        descriptor = link.fileno()
        self._loop.add_reader(descriptor, readable.set)
        try:
            while True:
                self._listeners.notify_all()
                completed()
                try:
                    async with asyncio.timeout(WAKE_SECONDS):
                        await self._receive_notices(link, readable)
                except TimeoutError:
                    continue
        finally:
            self._loop.remove_reader(descriptor)

    async def _receive_notices(self, link: Link, readable: asyncio.Event) -> None:
        while True:
            readable.clear()
            ours = self._sending.info.backend_pid if self._sending is not None and not self._sending.closed else None
            self._listeners.notify([notice.payload for notice in link.notifies(timeout=0) if notice.pid != ours])
            await readable.wait()
