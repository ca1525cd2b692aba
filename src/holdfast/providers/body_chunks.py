"""Bytes that grow at their end and are sent again with each request, in chunks that are not copied any more."""

from collections.abc import Iterable

CHUNK_BYTES = 64 * 1024


class GrowingBytes:
    """Appending and listing take as long as the newest chunk, not as all of them."""

    def __init__(self) -> None:
        self._full: list[bytes] = []
        self._last = bytearray()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes) -> None:
        self._last += data
        self._size += len(data)
        if len(self._last) >= CHUNK_BYTES:
            self._full.append(bytes(self._last))
            self._last.clear()

    def chunks(self) -> tuple[bytes, ...]:
        """What was appended so far. Later appends do not change it."""
        return (*self._full, bytes(self._last)) if self._last else tuple(self._full)


def merge_small(chunks: Iterable[bytes]) -> list[bytes]:
    """The same bytes with adjacent small chunks joined: each chunk is a write to the connection."""
    merged: list[bytes] = []
    small: list[bytes] = []
    size = 0
    for chunk in chunks:
        if size + len(chunk) > CHUNK_BYTES and small:
            merged.append(b"".join(small))
            small, size = [], 0
        small.append(chunk)
        size += len(chunk)
    return [*merged, b"".join(small)] if small else merged
