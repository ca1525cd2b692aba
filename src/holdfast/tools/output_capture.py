"""Captures output of any length: head and tail for the model, all of it in a private file, little of it in memory."""

import os
import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.store import durable_file

HEAD_CHARS = 20_000
TAIL_CHARS = 10_000
SHOWN_CHARS = HEAD_CHARS + TAIL_CHARS
UTF8_BYTES = 4
"""The maximum for one character."""
HEAD_BYTES = HEAD_CHARS * UTF8_BYTES
TAIL_BYTES = TAIL_CHARS * UTF8_BYTES
MAX_FILE_BYTES = 64 * 1024 * 1024


def create_private(folder: Path, stem: str, suffix: str) -> tuple[int, Path]:
    """A new file that only its owner can read, open for writing. Never opens an existing file."""
    durable_file.make_folders(folder, mode=0o700)
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", stem)[:80]
    number = 1
    while True:
        path = folder / (f"{safe}{suffix}" if number == 1 else f"{safe}-{number}{suffix}")
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path
        except FileExistsError:
            number += 1


class OutputCapture:
    """Accepts bytes and never fails: bytes that cannot be saved are counted, and the text says so.

    The file is created only once the output is longer than what is shown. Safe to feed from a thread
    that still runs when the capture is closed; later bytes are dropped.
    """

    def __init__(self, folder: Path, stem: str, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._folder = folder
        self._stem = stem
        self._max_file_bytes = max_file_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._saved = 0
        self._closed = False
        self._lock = threading.Lock()
        self.size = 0
        self.path: Path | None = None
        self.failure: str | None = None
        """Why the file is incomplete."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def touches_disk(self) -> bool:
        """Whether the next bytes may be written to the file."""
        return self.failure is None and self._saved < self._max_file_bytes

    def feed(self, chunk: bytes) -> None:
        with self._lock:
            if self._closed:
                return
            self.size += len(chunk)
            if self.path is not None:
                self._save(chunk)
            self._keep(chunk)
            if self.path is None and self.failure is None and self.size > SHOWN_CHARS:
                self._open()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is None:
                return
            os.close(self._file)
            self._file = None
            if self.path is not None and self._whole() is not None:
                self.path.unlink(missing_ok=True)

    def make_durable(self) -> None:
        """Flush the file, if there is one, once the capture is closed: an event is about to name it."""
        if self.path is None or not self.path.exists():
            return
        try:
            durable_file.sync_written(self.path)
        except OSError as e:
            self.failure = str(e)

    def _keep(self, chunk: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def _open(self) -> None:
        try:
            self._file, self.path = create_private(self._folder, self._stem, ".log")
        except OSError as e:
            self.failure = str(e)
            return
        self._save(bytes(self._head + self._tail))

    def _save(self, chunk: bytes) -> None:
        left = memoryview(chunk)[: self._max_file_bytes - self._saved]
        try:
            while left and self._file is not None and self.failure is None:
                written = os.write(self._file, left)
                self._saved += written
                left = left[written:]
        except OSError as e:
            self.failure = str(e)

    def text(self) -> str:
        """The text for the model. Bytes that are not UTF-8 become lone surrogates."""
        whole = self._whole()
        if whole is not None:
            return whole
        known = bytes(self._head + self._tail)
        head = bytes(self._head).decode("utf-8", "surrogateescape")[:HEAD_CHARS]
        tail = _skip_partial_character(known[-TAIL_BYTES:]).decode("utf-8", "surrogateescape")[-TAIL_CHARS:]
        return f"{head}\n[… the middle is omitted: {self._describe_saved()} …]\n{tail}"

    def newest(self, limit: int) -> bytes:
        """The last bytes, at most `limit`."""
        with self._lock:
            return bytes((self._tail if len(self._tail) >= limit else self._head + self._tail)[-limit:])

    def _whole(self) -> str | None:
        """All of the output, if it is short enough to show; the file is then not needed."""
        known = self._head + self._tail
        if self.size > len(known):
            return None
        text = known.decode("utf-8", "surrogateescape")
        return text if len(text) <= SHOWN_CHARS else None

    def _describe_saved(self) -> str:
        if self.path is None:
            return f"{self.size:,} bytes in total, not saved ({self.failure})"
        if self._saved == self.size:
            return f"all {self.size:,} bytes are in {self.path}"
        why = f" ({self.failure})" if self.failure else ""
        return f"the first {self._saved:,} of {self.size:,} bytes are in {self.path}{why}"


def _skip_partial_character(chunk: bytes) -> bytes:
    """The bytes without the end of a character whose start is missing."""
    for skip in range(min(UTF8_BYTES - 1, len(chunk))):
        if chunk[skip] & 0xC0 != 0x80:  # 10xxxxxx is a continuation byte
            return chunk[skip:]
    return chunk
