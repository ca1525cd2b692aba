"""Keeps the rendered form of the messages that later ones cannot change, so that a request renders only the new ones.

A conversation is rendered in two parts: the settled messages, whose bytes are kept, and the newest ones, which are
rendered for each request. The newest two exchanges are never settled, because Anthropic's cache markers move in them.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Self, TypeVar

import msgspec

from holdfast.model.message import Message, starts_with, take_first
from holdfast.model.provider import ModelRequest, RequestCache, ToolSpec
from holdfast.providers.body_chunks import GrowingBytes
from holdfast.providers.normalize import Block, CallIds, begins_exchange, normalize, settled_indexes
from holdfast.providers.sanitize import name_tools

MANY_MESSAGES = 500
"""From this many new messages on, a request is rendered in a thread: about 10 ms."""

SHARED_LISTS = 16
"""How many lists of tools are kept for later sessions."""
ToolForm = Callable[[ToolSpec, str], dict[str, object]]


class DeclaredTools(msgspec.Struct, frozen=True):
    """A list of tools in the form of a provider."""

    by_name: dict[str, ToolSpec]
    """By the names in the request."""
    names: dict[str, str]
    """From our names to those in the request."""
    items: list[dict[str, object]]
    json: msgspec.Raw


@lru_cache(SHARED_LISTS)
def declare(tools: tuple[ToolSpec, ...], form: ToolForm) -> DeclaredTools:
    """Declare the tools. Sessions with equal tools share the result, which is larger than most sessions."""
    by_name = name_tools(tools)
    items = [form(tool, name) for name, tool in by_name.items()]
    names = {tool.name: name for name, tool in by_name.items()}
    return DeclaredTools(by_name, names, items, msgspec.Raw(msgspec.json.encode(items)))


class NewBlocks(msgspec.Struct, frozen=True):
    """The messages of a request behind its settled part, normalized."""

    settled: list[Block]
    """Those that are settled from now on."""
    newest: list[Block]
    cut: int
    """How many messages are settled from now on."""
    settled_ids: CallIds


class RenderedPrefix:
    """The settled messages of one session, for one server and one list of tools."""

    call_id_pattern: re.Pattern[str]
    tool_form: ToolForm

    def __init__(self, server: str, tools: tuple[ToolSpec, ...]) -> None:
        self.server = server
        self.tools = tools
        self.declared_tools = declare(tools, type(self).tool_form)
        self.json = GrowingBytes()
        """The rendered messages, separated by commas."""
        self._messages: Sequence[Message] = ()
        self._ids = CallIds(self.call_id_pattern)
        self._sources: set[str] = set()
        self._newest_sources: set[str] = set()

    @classmethod
    def of(cls, request: ModelRequest, server: str) -> Self:
        """The prefix in the request's cache, if it is one of this request; otherwise an empty one."""
        kept = request.cache.value if request.cache is not None else None
        if isinstance(kept, cls) and kept._fits(request, server):
            return kept
        return cls(server, request.tools)

    def split(self, messages: Sequence[Message]) -> NewBlocks:
        """Changes nothing: `settle` does."""
        start = len(self._messages)
        indexes = settled_indexes(messages, start)
        cut = indexes[-2] if len(indexes) > 1 else start
        settled_ids = CallIds(self.call_id_pattern, self._ids)
        settled = normalize(messages[start:cut], settled_ids, is_end=False)
        newest = normalize(messages[cut:], CallIds(self.call_id_pattern, settled_ids))
        return NewBlocks(settled, newest, cut, settled_ids)

    def settle(self, request: ModelRequest, new: NewBlocks, rendered: Sequence[object]) -> None:
        """Keep the newly settled messages in their rendered form."""
        if rendered:
            self.json.append((b"," if self.json else b"") + encode_items(rendered))
        self._sources |= _call_ids(request.messages[len(self._messages) : new.cut])
        self._newest_sources = _call_ids(request.messages[new.cut :])
        self._messages = take_first(request.messages, new.cut)
        self._ids.add(new.settled_ids)
        if request.cache is not None:
            request.cache.value, request.cache.size = self, len(self.json)

    def has_call(self, id: str) -> bool:
        """Whether a call of the last request has this id in the log."""
        return id in self._sources or id in self._newest_sources

    def _fits(self, request: ModelRequest, server: str) -> bool:
        count = len(self._messages)
        return (
            self.server == server
            and self.tools == request.tools
            and len(request.messages) > count
            and starts_with(request.messages, self._messages)
            and begins_exchange(request.messages[count])
            and bool(settled_indexes(request.messages, count))
        )


B = TypeVar("B", bound="RenderedBody")


class RenderedBody(msgspec.Struct, frozen=True):
    """The body of a request, and the messages in it that are kept."""

    chunks: tuple[bytes, ...]
    """The body. Those of the settled messages are shared by all requests."""
    prefix: RenderedPrefix

    @property
    def body(self) -> bytes:
        """The body in one piece."""
        return b"".join(self.chunks)


async def render_in_thread_if_long(render: Callable[[ModelRequest], B], request: ModelRequest) -> B:
    """Render a request; in a thread if many messages have to be rendered, so that other sessions do not wait.

    A thread that nobody waits for any more, because the turn was stopped, changes nothing that another request uses.
    """
    kept = request.cache.value if request.cache is not None else None
    known = len(kept._messages) if isinstance(kept, RenderedPrefix) else 0
    if len(request.messages) - known <= MANY_MESSAGES:
        return render(request)
    own = RequestCache()
    rendered = await asyncio.to_thread(render, msgspec.structs.replace(request, cache=own))
    if request.cache is not None:
        request.cache.value, request.cache.size = own.value, own.size
    return rendered


def assemble(
    model: str, before: bytes, prefix: RenderedPrefix, newest: bytes, rest: Mapping[str, object]
) -> tuple[bytes, ...]:
    """The chunks of a body whose messages are those `before`, the settled ones and the newest; `rest` are its other fields."""
    settled = prefix.json.chunks()
    head = b'{"model":%s,"messages":[%s' % (msgspec.json.encode(model), before)
    end = b"]," + msgspec.json.encode(rest)[1:]
    first = b"," if before and settled else b""
    second = b"," if newest and (before or settled) else b""
    return (head + first, *settled, second + newest + end)


def encode_items(items: Sequence[object]) -> bytes:
    """The JSON of the items, separated by commas."""
    return msgspec.json.encode(items)[1:-1]


def _call_ids(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages for call in message.tool_calls}
