"""Memory shared by the processes of one server: how many connections each has, and the metrics that each has published.

The supervising process creates it before it forks the others. A process writes only to its own slot, the supervising
process to a slot whose process has ended. Nothing in it is needed for correctness: it balances load and describes it.
"""

import mmap
import struct
import zlib

HEADER = struct.Struct("=IIIII")
"""Whether the process accepts connections, its connections, how often it was replaced, and the length and checksum of its metrics."""
SLOT_BYTES = 65_536
MAX_PROCESSES = 64
READ_TRIES = 3
"""A reader can see a half-written text, which its checksum shows."""


class ProcessSlots:
    """The slots of all processes, numbered from 1."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._memory = mmap.mmap(-1, count * SLOT_BYTES)  # anonymous, and shared with forked processes

    def clear(self, number: int, *, replaced: int) -> None:
        """Forget a process that has ended. `replaced` says how often one of this number has."""
        HEADER.pack_into(self._memory, self._offset(number), 0, 0, replaced, 0, 0)

    def set_connections(self, number: int, count: int, *, accepting: bool) -> None:
        struct.pack_into("=II", self._memory, self._offset(number), accepting, count)

    def fewest_connections(self) -> int | None:
        """The smallest number of connections of a process that accepts some; None if there is no such process."""
        headers = (self._header(number) for number in range(1, self.count + 1))
        return min((connections for accepting, connections, *_ in headers if accepting), default=None)

    def replaced(self, number: int) -> int:
        return self._header(number)[2]

    def publish(self, number: int, text: bytes) -> None:
        """Replace the metrics of a process. A text that is too long for its slot is dropped."""
        start = self._offset(number)
        if len(text) > SLOT_BYTES - HEADER.size:
            text = b""
        self._memory[start + HEADER.size : start + HEADER.size + len(text)] = text
        struct.pack_into("=II", self._memory, start + HEADER.size - 8, len(text), zlib.crc32(text))

    def read(self, number: int) -> bytes | None:
        """The metrics that a process has published; None if there are none."""
        start = self._offset(number) + HEADER.size
        for _ in range(READ_TRIES):
            *_, length, checksum = self._header(number)
            text = self._memory[start : start + min(length, SLOT_BYTES - HEADER.size)]
            if text and zlib.crc32(text) == checksum:
                return text
        return None

    def _header(self, number: int) -> tuple[int, ...]:
        return HEADER.unpack_from(self._memory, self._offset(number))

    def _offset(self, number: int) -> int:
        return (number - 1) * SLOT_BYTES


class ProcessSlot:
    """The slot of this process."""

    def __init__(self, slots: ProcessSlots, number: int) -> None:
        self._slots = slots
        self.number = number

    def set_connections(self, count: int, *, accepting: bool = True) -> None:
        self._slots.set_connections(self.number, count, accepting=accepting)

    def has_more_than_others(self, count: int) -> bool:
        """Whether another process that accepts connections has fewer than `count`."""
        fewest = self._slots.fewest_connections()
        return fewest is not None and fewest < count

    def publish(self, text: bytes) -> None:
        """Publish the metrics of this process for the others."""
        self._slots.publish(self.number, text)

    def read_others(self) -> dict[int, bytes]:
        """The metrics that the others have published last."""
        others = (number for number in range(1, self._slots.count + 1) if number != self.number)
        return {number: text for number in others if (text := self._slots.read(number)) is not None}

    def replacements(self) -> dict[int, int]:
        """How often each process was replaced."""
        return {number: self._slots.replaced(number) for number in range(1, self._slots.count + 1)}
