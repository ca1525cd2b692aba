"""The last look at a reply before it is handed over, alike for all vendors."""

import secrets
from collections.abc import Callable, Iterable, Mapping

import msgspec

from holdfast.model.asking import Reply, Request
from holdfast.model.errors import BadReply, Refused
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text, ToolCall
from holdfast.providers.wire import offered


def new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class Made(msgspec.Struct, frozen=True):
    """A call as the vendor told it."""

    id: str
    name: str
    arguments: str


class Called:
    """Gives each call of a reply an id that no other call has, and the name of the tool as the request knows it."""

    def __init__(self, request: Request, new_id: Callable[[], str], who: str) -> None:
        self._names = {name: tool.name for name, tool in offered(request.tools).items()}
        self._taken = {call.id for message in request.messages for call in message.tool_calls}
        self._new_id = new_id
        self._who = who

    def calls(self, made: Iterable[Made], *, cut: bool) -> dict[str, ToolCall]:
        """The calls by the ids they came with or were given. Raises BadReply for one without a name.

        In a reply that was `cut` by its length, a call may lack its arguments, and must not run without them.
        """
        found: dict[str, ToolCall] = {}
        for call in made:
            if not call.name.strip():
                raise BadReply(f"{self._who} sent a tool call without a name: ask again")
            id = call.id if call.id.strip() and call.id not in self._taken else self._new_id()
            self._taken.add(id)
            text = call.arguments if call.arguments.strip() or cut else "{}"
            found[id] = ToolCall(id, self._names.get(call.name, call.name), text)
        return found


def finished(parts: Iterable[Part], *, model: str, finish: str, usage: Usage, who: str) -> Reply:
    """The reply, with a finish that fits what it holds. Raises BadReply for one that says nothing."""
    parts = tuple(part for part in parts if not isinstance(part, Text) or part.text.strip())
    calls = any(isinstance(part, ToolCall) for part in parts)
    says = any(not isinstance(part, Reasoning) for part in parts)
    if finish == "stop" and calls:
        finish = "tool_calls"
    elif finish == "tool_calls" and not calls:
        finish = "stop"
    if finish == "refused" and not says:
        raise Refused(f"{who} will not answer this: change the request or choose another model")
    if finish != "length" and not says:
        raise BadReply(f"{who} sent an empty reply: ask again")
    return Reply(parts=parts, model=model, finish=finish, usage=usage)


def counted(usage: Mapping[str, object] | None, *path: str) -> int:
    """A number somewhere in a vendor's account of tokens; 0 where it is missing or makes no sense."""
    value: object = usage
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return max(0, int(value)) if isinstance(value, int | float) and not isinstance(value, bool) else 0
