"""A stream of events that goes on although the worker that told it has died.

The turn does not die with the worker: the next one takes it up, and tells the same request again from the beginning. What the
client has heard already is left out of that. Where the new telling does not begin with the old, as when a model was
asked again and said something else, nothing is mixed: the stream ends with an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec

DATA = b"data: "
DONE = b"[DONE]"
MOST = 8 * 2**20
"""Bytes of one event; more than any worker sends."""
MOST_WORDS = 2**22
"""Characters of one chat; more than any model says in one turn. They are kept, to be compared with another telling."""
LEAVING = "unavailable"


class Cut(Exception):
    """The worker says that it leaves, in mid-stream: this is to be told on by the next one."""


class Mismatch(Exception):
    """The new telling is not the old one."""


class Frames:
    """Takes a stream apart into its events, each with the blank line that ends it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *whole, self._rest = (self._rest + piece).split(b"\n\n")
        if len(self._rest) > MOST:
            raise Mismatch("an event is too long")
        for frame in whole:
            yield frame + b"\n\n"


class Splice(ABC):
    """What was passed on so far, over however many tellings."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._is_done = False

    def begin(self) -> None:
        """Another worker begins to tell."""
        self._frames = Frames()

    def take(self, piece: bytes) -> bytes:
        """What of this piece is news. Raises Cut or Mismatch."""
        return b"".join(self._news(frame) for frame in self._frames.feed(piece))

    def _news(self, frame: bytes) -> bytes:
        text = next((line.removeprefix(DATA) for line in frame.split(b"\n") if line.startswith(DATA)), b"")
        if self._is_done:
            return b""
        self._is_done = text == DONE
        if not text or self._is_done:
            return frame
        try:
            data = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            return frame  # none of ours
        if _code(data) == LEAVING:
            raise Cut
        return self._told(frame, data)

    @abstractmethod
    def _told(self, frame: bytes, data: dict[str, Any]) -> bytes:
        """What of an event of ours is news."""


def _code(data: dict[str, Any]) -> object:
    inner = data.get("error", data if data.get("type") == "error" else None)
    return inner.get("code") if isinstance(inner, dict) else None


class ChatSplice(Splice):
    """Chat Completions: words, and between and after them events that come in the same order every time."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self._others = 0
        self._heard = 0
        self._counted = 0

    def begin(self) -> None:
        super().begin()
        self._heard = self._counted = 0

    def _told(self, frame: bytes, data: dict[str, Any]) -> bytes:
        words = _words(data)
        if words is None:
            self._counted += 1
            if self._counted <= self._others:
                return b""
            self._others = self._counted
            return frame
        known = self._text[self._heard : self._heard + len(words)]
        if not words.startswith(known):
            raise Mismatch("the model was asked again and said something else")
        self._heard += len(words)
        news = words[len(known) :]
        self._text += news
        if len(self._text) > MOST_WORDS:
            raise Mismatch("it has no end")
        if not known:
            return frame
        if news:
            data["choices"][0]["delta"]["content"] = news
        return DATA + msgspec.json.encode(data) + b"\n\n" if news else b""


def _words(data: dict[str, Any]) -> str | None:
    """The words of a chunk that has nothing but words."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or choices[0].get("finish_reason") is not None:
        return None
    delta = choices[0].get("delta")
    return delta["content"] if isinstance(delta, dict) and delta.keys() == {"content"} else None


class ResponseSplice(Splice):
    """Responses: every event has a number, which follows from the log. Words count one for each character, so it says of words
    that come in other pieces how many of them are known."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def _told(self, frame: bytes, data: dict[str, Any]) -> bytes:
        number = data.get("sequence_number")
        if not isinstance(number, int):
            return frame
        if number <= self._last:
            return b""
        last, self._last = self._last, number
        words = str(data.get("delta", "")) if data.get("type") == "response.output_text.delta" else ""
        known = last - (number - len(words))
        if not words or known <= 0:
            return frame
        name, _, _ = frame.partition(DATA)
        return name + DATA + msgspec.json.encode(data | {"delta": words[known:]}) + b"\n\n"


def splice_for(path: str) -> Splice | None:
    """How a stream of this route can be told on; None if it cannot."""
    if path == "/v1/chat/completions":
        return ChatSplice()
    return ResponseSplice() if path == "/v1/responses" else None
