"""Accepts connections from a listening socket that several processes share.

Connections stay open for many requests, so each process should get its share of them. The kernel wakes every process, and
the first one would take all that wait. So a process takes one at a time, and one with more connections than another waits
a moment before it does. A connection that no process has accepted yet is lost with none of them.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from holdfast.process_slots import ProcessSlot
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)
YIELD_SECONDS = 0.005
"""How long a process with more connections leaves one to the others: enough for an idle one. If those hang, it still accepts 200 a second."""
PAUSE_SECONDS = 1.0
"""How long none is accepted when the system has no room for another one."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SharedListener:
    """Open from `start` to `stop`. `count` returns the number of open connections."""

    def __init__(
        self,
        listener: socket.socket,
        slot: ProcessSlot,
        new_protocol: Callable[[], asyncio.Protocol],
        count: Callable[[], int],
        *,
        yield_seconds: float = YIELD_SECONDS,
    ) -> None:
        self._listener = listener
        self._slot = slot
        self._new_protocol = new_protocol
        self._count = count
        self._yield_seconds = yield_seconds
        self._loop = asyncio.get_running_loop()
        self._accepted = Tasks()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.report()
        self._loop.add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        """Accept no more. Returns when every accepted socket has become a connection."""
        self._loop.remove_reader(self._listener)
        if self._timer is not None:
            self._timer.cancel()
        self._slot.set_connections(0, accepting=False)
        if tasks := list(self._accepted):
            await asyncio.wait(tasks)

    def report(self) -> int:
        """Tell the other processes how many connections this one has."""
        count = self._count() + len(self._accepted)
        self._slot.set_connections(count)
        return count

    def _accept(self) -> None:
        if self._slot.has_more_than_others(self.report()):
            self._pause(self._yield_seconds)
        else:
            self._accept_one()

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
        self._accept_one()

    def _accept_one(self) -> None:
        try:
            connection, _ = self._listener.accept()
            self._accepted.start(self._open(connection))
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # another process was faster, or the client has left
        except OSError as e:
            if e.errno not in EXHAUSTED:
                raise
            logger.warning("cannot accept connections for %.0f s: %s", PAUSE_SECONDS, e)
            self._pause(PAUSE_SECONDS)
        self.report()

    async def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.connect_accepted_socket(self._new_protocol, connection)
