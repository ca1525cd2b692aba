"""Model requests and replies: the port that every provider implements."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from holdfast.model.event import Usage
from holdfast.model.message import Message, Part


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, object]
    strict: bool = False
    """Whether the provider should enforce the schema; providers that cannot do so ignore it."""

    def __hash__(self) -> int:
        return hash((self.name, self.description))  # a schema has no hash; equal tools have equal names and texts


class RequestCache:
    """What a provider keeps between the requests of one session, so that it need not render all messages again.

    It only saves work: a request without it, or with that of another session, gets the same reply.
    """

    def __init__(self) -> None:
        self.value: object = None
        self.size = 0
        """Bytes in use."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. In `messages`, each tool call has exactly one result, right after the calls."""

    model: str
    system: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    options: dict[str, str] = {}
    """Parameters of certain providers, each value as JSON text; the caller has checked that the provider supports them."""
    cache: RequestCache | None = None


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    text: str


class FallbackAsked(msgspec.Struct, frozen=True):
    """From now on a fallback is asked: `provider:name`."""

    model: str


class StreamRestarted(msgspec.Struct, frozen=True):
    """The attempt failed and another one begins: discard the deltas received so far."""

    reason: str


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt failed; the next one starts after a delay."""

    reason: str
    seconds: float
    attempt: int
    """The number of the next attempt."""
    attempts: int
    """The maximum number of attempts."""


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The complete reply. `finish` is `stop`, `tool_calls`, `length` or `refused`."""

    parts: tuple[Part, ...]
    model: str
    finish: str
    usage: Usage = Usage()
    called: str = ""
    """The model that was called, as `provider:name`; `model` is what the provider calls it."""


Delta = TextDelta | ReasoningDelta

ReplyItem = Delta | FallbackAsked | StreamRestarted | Retrying | ModelReply

AskModel = Callable[[ModelRequest], AsyncIterator[ReplyItem]]
"""A model with its retries and fallbacks: it yields deltas, then one ModelReply, or raises a ProviderFailed."""


class Provider(Protocol):
    name: str
    """The part before the colon in `provider:model`."""

    def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        """Stream the reply: any number of deltas, then exactly one `ModelReply` with the complete content.

        Raises ProviderFailed for every failure, including a stream that ends early. Closing the
        iterator cancels the request. Never retries.
        """

    def window(self, model: str) -> int | None:
        """The size of the model's context window in tokens, if known."""

    async def close(self) -> None:
        """Release connections and memory. May be called twice."""
