"""What is asked of a model and what comes back: the port that every provider fills."""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from holdfast.model.event import Usage
from holdfast.model.message import Message, Part


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, object]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model. In `messages` each tool call has exactly one result, right behind the calls."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    options: dict[str, str] = {}
    """Parameters that only some providers know, each value as JSON text; whoever sets one has seen to it that it is known."""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    text: str


class Restarted(msgspec.Struct, frozen=True):
    """The attempt whose deltas came so far has failed and another begins: what was streamed does not count."""

    reason: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The whole reply. `finish` is `stop`, `tool_calls`, `length` or `refused`."""

    parts: tuple[Part, ...]
    model: str
    finish: str
    usage: Usage = Usage()


Delta = TextDelta | ReasoningDelta


class Provider(Protocol):
    name: str
    """The word before the colon in `provider:model`."""

    def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
        """Stream the reply: any number of deltas, then exactly one `Reply` that holds everything.

        Raises a ProviderFailed for every failure, also for a stream that ends early; closing the
        iterator stops the request. Never retries by itself.
        """

    def window(self, model: str) -> int | None:
        """How many tokens the model's context holds, if that is known."""

    async def close(self) -> None:
        """Give connections and memory back. May be called twice."""
