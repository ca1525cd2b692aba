"""Resumes an event stream after its worker died.

The turn survives the worker: the next worker recovers it and streams the same request again from the beginning. The
broker leaves out what the client has received. If the new stream does not begin with the old one, because the model
was called again and replied differently, the broker does not mix them: the stream ends with an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec

DATA = b"data: "
DONE = b"[DONE]"
MAX_EVENT_BYTES = 8 * 2**20
"""More than any worker sends."""
MAX_TEXT = 2**22
"""Characters kept for comparison with another stream; more than any model generates in one turn."""
UNAVAILABLE = "unavailable"


class StreamCut(Exception):
    """The worker shuts down during the stream: the next one continues it."""


class StreamMismatch(Exception):
    """The new stream differs from the old one."""


class SseFrameParser:
    """Splits a stream into events, each with its final blank line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise StreamMismatch("an event is too long")
        for frame in whole:
            yield frame + b"\n\n"


class StreamResume(ABC):
    """What was forwarded so far, from any number of workers."""

    def __init__(self) -> None:
        self._frames = SseFrameParser()
        self._is_done = False

    def begin(self) -> None:
        """Start with the stream of another worker."""
        self._frames = SseFrameParser()

    def take(self, piece: bytes) -> bytes:
        """Return the part of this chunk that is new. Raises StreamCut or StreamMismatch."""
        return b"".join(self._new_bytes(frame) for frame in self._frames.feed(piece))

    def _new_bytes(self, frame: bytes) -> bytes:
        text = next((line.removeprefix(DATA) for line in frame.split(b"\n") if line.startswith(DATA)), b"")
        if self._is_done:
            return b""
        self._is_done = text == DONE
        if not text or self._is_done:
            return frame
        try:
            data = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            return frame  # not from Holdfast
        if _code(data) == UNAVAILABLE:
            raise StreamCut
        return self._new_part(frame, data)

    @abstractmethod
    def _new_part(self, frame: bytes, data: dict[str, Any]) -> bytes:
        """Return the part of an event that is new."""


def _code(data: dict[str, Any]) -> object:
    inner = data.get("error", data if data.get("type") == "error" else None)
    return inner.get("code") if isinstance(inner, dict) else None


class ChatStreamResume(StreamResume):
    """Chat Completions: text chunks, and other events, which always come in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self._others = 0
        self._received = 0
        self._counted = 0

    def begin(self) -> None:
        super().begin()
        self._received = self._counted = 0

    def _new_part(self, frame: bytes, data: dict[str, Any]) -> bytes:
        text = _chunk_text(data)
        if text is None:
            self._counted += 1
            if self._counted <= self._others:
                return b""
            self._others = self._counted
            return frame
        known = self._text[self._received : self._received + len(text)]
        if not text.startswith(known):
            raise StreamMismatch("the model was called again and replied differently")
        self._received += len(text)
        new = text[len(known) :]
        self._text += new
        if len(self._text) > MAX_TEXT:
            raise StreamMismatch("the text is too long")
        if not known:
            return frame
        if new:
            data["choices"][0]["delta"]["content"] = new
        return DATA + msgspec.json.encode(data) + b"\n\n" if new else b""


def _chunk_text(data: dict[str, Any]) -> str | None:
    """Return the text of a chunk that contains only text."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or choices[0].get("finish_reason") is not None:
        return None
    delta = choices[0].get("delta")
    return delta["content"] if isinstance(delta, dict) and delta.keys() == {"content"} else None


class ResponseStreamResume(StreamResume):
    """Responses: the events are numbered, and the numbers follow from the log."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def _new_part(self, frame: bytes, data: dict[str, Any]) -> bytes:
        number = data.get("sequence_number")
        if not isinstance(number, int):
            return frame
        if number <= self._last:
            return b""
        self._last = number
        return frame


def resume_for(path: str) -> StreamResume | None:
    """Return how to resume a stream of this route; None if it cannot resume."""
    if path == "/v1/chat/completions":
        return ChatStreamResume()
    return ResponseStreamResume() if path == "/v1/responses" else None
