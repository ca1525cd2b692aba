"""Builds and checks the final reply, in the same way for all providers."""

import secrets
import sys
from collections.abc import Callable, Iterable

import msgspec

from holdfast.model.errors import BadReply, Refused
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text, ToolCall
from holdfast.model.provider import ModelReply
from holdfast.providers.rendered_prefix import RenderedPrefix


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class VendorCall(msgspec.Struct, frozen=True):
    """A call as the provider sent it."""

    id: str
    name: str
    arguments: str


class CallIdAllocator:
    """Gives each call of a reply a unique id, and the name of the tool as in the request."""

    def __init__(self, prefix: RenderedPrefix, new_id: Callable[[], str], who: str) -> None:
        self._prefix = prefix
        self._new_id = new_id
        self._who = who

    def calls(self, made: Iterable[VendorCall], *, cut: bool) -> dict[str, ToolCall]:
        """The calls by their ids, sent or new. Raises BadReply for a call without a name.

        In a reply that was `cut` at the token limit, a call may lack its arguments, and must not run without them.
        """
        found: dict[str, ToolCall] = {}
        for call in made:
            if not call.name.strip():
                raise BadReply(f"{self._who} sent a tool call without a name: try again")
            is_taken = call.id in found or self._prefix.has_call(call.id)
            id = call.id if call.id.strip() and not is_taken else self._new_id()
            text = call.arguments if call.arguments.strip() or cut else "{}"
            tool = self._prefix.declared_tools.by_name.get(call.name)
            found[id] = ToolCall(id, tool.name if tool is not None else call.name, text)
        return found


def build_reply(parts: Iterable[Part], *, model: str, finish: str, usage: Usage, who: str) -> ModelReply:
    """The reply, with a finish reason that matches its content. Raises BadReply for an empty reply."""
    parts = tuple(part for part in parts if not isinstance(part, Text) or part.text.strip())
    calls = any(isinstance(part, ToolCall) for part in parts)
    says = any(not isinstance(part, Reasoning) for part in parts)
    if finish == "stop" and calls:
        finish = "tool_calls"
    elif finish == "tool_calls" and not calls:
        finish = "stop"
    if finish == "refused" and not says:
        raise Refused(f"{who} refused to answer: change the request or choose another model")
    if finish != "length" and not says:
        raise BadReply(f"{who} sent an empty reply: try again")
    return ModelReply(parts=parts, model=model, finish=finish, usage=usage)


def read_count(usage: dict[str, object] | None, *path: str) -> int:
    """A number in the provider's token usage; 0 if it is missing or invalid."""
    return max(0, int(read_number(usage, *path) or 0))


def read_number(usage: dict[str, object] | None, *path: str) -> float | None:
    """A number in the provider's usage; None if it is missing, no number, or not finite."""
    value: object = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None
