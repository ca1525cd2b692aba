"""Standard input and output as the connection to the program that started this one: one message per line.

While it is used, descriptor 0 is the null device and descriptor 1 is standard error, so that neither tools nor stray output
can reach the client's streams.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdfast.model.errors import Invalid

CHUNK = 64 * 1024


@contextmanager
def own_descriptors(hint: str) -> Iterator[tuple[int, int]]:
    """Take descriptors 0 and 1 for the client, and put others in their places. Raises Invalid, with the hint, if they are no pipes."""
    for descriptor, name in ((0, "input"), (1, "output")):
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            raise Invalid(f"standard {name} is not a pipe: {hint}")
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield source, target
    finally:
        os.close(nothing)
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(source)
        os.close(target)


@asynccontextmanager
async def open_pipes(source: int, target: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open the descriptors as streams."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(source), "rb", buffering=0)
    )
    outgoing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(target), "wb", buffering=0)
    )
    try:
        yield reader, asyncio.StreamWriter(outgoing, protocol, None, loop)
    finally:
        incoming.close()
        outgoing.close()


class PipeLines:
    """Reads lines. Of a line that is too long, no more than the limit is kept."""

    def __init__(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        self._reader = reader
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """The next line without its end; None at the end of the input. A line that is too long is cut after the limit."""
        line = bytearray()
        while True:
            end = self._buffer.find(b"\n")
            piece = bytes(self._buffer if end < 0 else self._buffer[:end])
            line += piece[: self.max_bytes + 1 - len(line)]
            del self._buffer[: len(piece) + (end >= 0)]
            if end >= 0:
                return bytes(line)
            chunk = await self._reader.read(CHUNK)
            if not chunk:
                return bytes(line) if line else None
            self._buffer += chunk
