"""The size of a context in tokens: the provider's count for the last reply, plus an estimate of what was added since.

The estimate is three bytes of UTF-8 per token, deliberately too high rather than too low. For English that is a third more than
models count, for Cyrillic about right, and a Chinese or Japanese character, which has three bytes, is one token. Dense
data such as base64 can take more: then the provider rejects the context, and `budget` lowers the limit.
"""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.provider import ToolSpec

BYTES_PER_TOKEN = 3
PER_MESSAGE = 6
"""The overhead that vendors add per message, rounded up."""
PER_CALL = 12
PER_TOOL = 8
IMAGE = 1_600
"""The maximum that common vendors count for an image."""
FILE = 2_000
"""A few pages for a file by reference; embedded data counts by its length if that is more."""
LOWER_BOUND = 0.75
"""The lower bound of an estimate: four bytes per token."""
MIN_CREDIBLE = 0.25
"""The share of our estimate that a provider's count must reach: twelve bytes per token. Some servers do not count what
they had cached, or truncate the context silently; with such a count, compaction would never start."""


class TokenEstimate(msgspec.Struct, frozen=True):
    """The size of the context in tokens: an upper estimate and a lower bound."""

    tokens: int
    lower_bound: int


class CountedPrefix(msgspec.Struct, frozen=True):
    """The first messages of the view, with the frame, take this many tokens; counted by the provider or derived from an estimate."""

    messages: int
    tokens: int
    is_counted: bool


class TokenCounter:
    """Tracks the size of a view that grows at its end. Call `forget` after any other change."""

    def __init__(self) -> None:
        self._known: list[CountedPrefix] = []
        self._estimated: tuple[int, int] = (0, 0)
        """The estimated tokens of the first messages, without the frame."""

    @property
    def is_counted(self) -> bool:
        """Whether the known size is based on a count of the provider."""
        return bool(self._known) and self._known[-1].is_counted

    def record(self, messages: int, tokens: int, *, is_counted: bool) -> None:
        self._known.append(CountedPrefix(messages, tokens, is_counted))

    def forget(self) -> None:
        self._known, self._estimated = [], (0, 0)

    def forget_counts(self) -> None:
        """Forget the counts of another model, which counts differently."""
        self._known = []

    def forget_estimate(self) -> None:
        self._estimated = (0, 0)

    def keep_counts(self, known: Sequence[CountedPrefix], messages: int) -> None:
        """Keep what is known about the first messages, which remain."""
        self._known = [one for one in known if one.messages <= messages]

    @property
    def known(self) -> Sequence[CountedPrefix]:
        return self._known

    def estimate(self, view: Sequence[Message], frame: int) -> TokenEstimate:
        """`frame` is the estimated size of the system text and the tools."""
        known = self._known[-1] if self._known else None
        estimated = frame + self.estimate_view(view) if known is None else estimate_messages(view[known.messages :])
        if known is None or not known.is_counted:
            estimated += known.tokens if known is not None else 0
            return TokenEstimate(estimated, int(estimated * LOWER_BOUND))
        lower_bound = known.tokens + int(estimated * LOWER_BOUND)
        return TokenEstimate(
            max(known.tokens + estimated, int((frame + self.estimate_view(view)) * MIN_CREDIBLE)), lower_bound
        )

    def estimate_view(self, view: Sequence[Message]) -> int:
        """The estimated size of the messages, without provider counts."""
        count, known = self._estimated
        known += estimate_messages(view[count:])
        self._estimated = len(view), known
        return known


def estimate_text(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def estimate_message(message: Message) -> int:
    return PER_MESSAGE + sum(map(_estimate_part, message.parts))


def estimate_messages(messages: Iterable[Message]) -> int:
    return sum(map(estimate_message, messages))


def estimate_frame(system: str, tools: Iterable[ToolSpec]) -> int:
    """The size of the system text and the tools, which every request includes."""
    specs = (len(msgspec.json.encode(tool)) for tool in tools)
    return PER_MESSAGE + estimate_text(system) + sum(PER_TOOL - (-spec // BYTES_PER_TOKEN) for spec in specs)


def _estimate_part(part: Part) -> int:
    match part:
        case Text():
            return estimate_text(part.text)
        case Image():
            return IMAGE
        case File():
            return max(FILE, len(part.url) // (BYTES_PER_TOKEN + 1) if part.url.startswith("data:") else 0)
        case Reasoning():
            return estimate_text(part.text) + sum(map(estimate_text, part.opaque.values()))
        case ToolCall():
            return PER_CALL + estimate_text(part.name) + estimate_text(part.arguments)
        case ToolResult():
            return PER_CALL + sum(map(_estimate_part, part.parts))
