"""Several processes accept from one socket: here as two listeners in one event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from holdfast.process_slots import ProcessSlot, ProcessSlots
from holdfast.shared_listener import YIELD_SECONDS, SharedListener


class Accepting:
    """One of the processes, with the connections that it has accepted."""

    def __init__(self, listener: socket.socket, slots: ProcessSlots, number: int, yield_seconds: float) -> None:
        self.connections: list[asyncio.BaseTransport] = []
        self._socket = listener.dup()
        self._socket.setblocking(False)
        self.listener = SharedListener(
            self._socket,
            ProcessSlot(slots, number),
            self._new_connection,
            lambda: len(self.connections),
            yield_seconds=yield_seconds,
        )

    def _new_connection(self) -> asyncio.Protocol:
        accepted = self.connections

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(transport)

        return Connection()

    async def close(self) -> None:
        await self.listener.stop()
        for connection in self.connections:
            connection.close()
        await asyncio.sleep(0)
        self._socket.close()


@asynccontextmanager
async def accepting(
    yield_seconds: float = YIELD_SECONDS,
) -> AsyncIterator[tuple[Accepting, Accepting, Callable[[int], None]]]:
    """Two processes that do not accept yet, and a function that opens connections."""
    slots, clients = ProcessSlots(2), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one, other = (Accepting(listener, slots, number, yield_seconds) for number in (1, 2))

        def connect(count: int) -> None:
            clients.extend(socket.create_connection(listener.getsockname()) for _ in range(count))

        try:
            yield one, other, connect
        finally:
            for each in (one, other):
                await each.close()
            for client in clients:
                client.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)


async def test_each_process_gets_its_share_of_the_connections() -> None:
    async with accepting() as (one, other, connect):
        one.listener.start()
        other.listener.start()
        connect(20)
        await until(lambda: len(one.connections) + len(other.connections) == 20)

        assert min(len(one.connections), len(other.connections)) >= 5


async def test_a_process_with_fewer_connections_gets_the_next_ones() -> None:
    async with accepting(yield_seconds=60) as (one, other, connect):
        one.listener.start()
        connect(6)
        await until(lambda: len(one.connections) == 6)
        other.listener.start()
        connect(4)
        await until(lambda: len(one.connections) + len(other.connections) == 10)

        assert len(other.connections) == 4


async def test_a_process_that_does_not_take_its_share_prevents_no_connection() -> None:
    async with accepting() as (one, other, connect):
        one.listener.start()
        other.listener.report()  # it hangs: it has no connections, and accepts none
        connect(5)
        await until(lambda: len(one.connections) == 5)

        assert not other.connections


async def test_a_process_that_has_stopped_leaves_connections_to_the_others() -> None:
    async with accepting() as (one, other, connect):
        one.listener.start()
        other.listener.start()
        await one.listener.stop()
        connect(3)
        await until(lambda: len(other.connections) == 3)

        assert not one.connections
