"""Assembles the chunks of a Chat Completions stream into a reply. Pure: no network.

Compatible servers differ: some send no call index, some send index 0 for all calls, some repeat names or send
arguments as objects, some send no finish reason. Whatever is unambiguous is accepted; what is missing is reported.
"""

import json
from collections.abc import Iterator

import msgspec

from holdfast.model.errors import BadReply, Unreachable
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text
from holdfast.model.provider import Delta, ModelReply, ModelRequest, ReasoningDelta, TextDelta
from holdfast.providers.error_mapping import ProviderErrorResponse
from holdfast.providers.openai.request import NAME
from holdfast.providers.reply_builder import CallIdAllocator, VendorCall, build_reply, read_count, read_number
from holdfast.providers.sse_parser import decode_event

FINISHES = {
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refused",
}
"""Any other reason means `stop`, except these:"""
FAILED = {"error", "insufficient_system_resource"}

REASONING_FIELDS = ("reasoning_content", "reasoning")


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, object] | None = None


class _Call(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, object] | None = None


class _OpenAiDelta(msgspec.Struct, frozen=True):
    content: str | list[dict[str, object]] | None = None
    refusal: str | None = None
    reasoning_content: object = None
    reasoning: object = None
    reasoning_details: object = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _OpenAiDelta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, frozen=True):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: dict[str, object] | None = None
    error: object = None


_decoder = msgspec.json.Decoder(_Chunk)


class _PendingCall:
    """A call that is still being streamed."""

    def __init__(self) -> None:
        self.id = self.name = self.arguments = ""
        self.extra: dict[str, object] = {}

    def add(self, piece: _Call) -> None:
        self.id = self.id or piece.id or ""
        self.extra.update(piece.extra_content or {})
        function = piece.function or _Function()
        if function.name and function.name != self.name:
            self.name += function.name
        if isinstance(function.arguments, dict):
            self.arguments = json.dumps(function.arguments)
        else:
            self.arguments += function.arguments or ""


class OpenAiReply:
    """A reply that is being streamed."""

    def __init__(self, request: ModelRequest, *, server: str, who: str, call_ids: CallIdAllocator) -> None:
        self._request = request
        self._server = server
        self._who = who
        self._call_ids = call_ids
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._field = ""
        self._details: list[dict[str, object]] = []
        self._calls: list[_PendingCall] = []
        self._by_index: dict[int, _PendingCall] = {}
        self._refused = False
        self._model = ""
        self._finish = ""
        self._usage: dict[str, object] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the finish reason has arrived; only the token count may still follow."""
        return bool(self._finish)

    def add(self, data: bytes) -> Iterator[Delta]:
        """Add one chunk and return the deltas to show. Raises BadReply for an invalid chunk, ProviderErrorResponse for an error."""
        read = decode_event(data, _decoder, who=self._who)
        if read.error:
            raise ProviderErrorResponse(None, {}, data)
        self._model = read.model or self._model
        self._usage = read.usage or self._usage
        for choice in (read.choices or [])[:1]:
            yield from self._add_delta(choice.delta or _OpenAiDelta())
            self._finish = choice.finish_reason or self._finish

    def reply(self) -> ModelReply:
        """The complete reply. Raises BadReply if it is incomplete or empty, Refused for a refusal without text."""
        if not self._finish:
            raise BadReply(f"{self._who} ended the stream before the reply was complete: try again")
        if self._finish in FAILED:
            raise Unreachable(f"{self._who} failed during the reply: try again later or choose another model")
        finish = "refused" if self._refused else FINISHES.get(self._finish, "stop")
        made = [VendorCall(call.id, call.name, call.arguments) for call in self._calls]
        calls = self._call_ids.calls(made, cut=finish == "length")
        extra = {id: call.extra for id, call in zip(calls, self._calls, strict=True) if call.extra}
        parts: list[Part] = [*self._thoughts(extra), Text("".join(self._text)), *calls.values()]
        model = self._model or self._request.model
        return build_reply(parts, model=model, finish=finish, usage=self._usage_total(), who=self._who)

    def _add_delta(self, delta: _OpenAiDelta) -> Iterator[Delta]:
        for field in REASONING_FIELDS:
            thought = getattr(delta, field)
            if isinstance(thought, str) and self._field in {"", field}:
                self._field = field
                yield from self._add_reasoning(thought)
        for detail in delta.reasoning_details if isinstance(delta.reasoning_details, list) else ():
            if isinstance(detail, dict):
                self._add_detail(detail)
        if isinstance(delta.content, list):
            for item in delta.content:
                yield from self._add_item(item)
        else:
            yield from self._add_text(delta.content or "")
        if delta.refusal:
            self._refused = True
            yield from self._add_text(delta.refusal)
        for piece in delta.tool_calls or ():
            self._find_call(piece).add(piece)

    def _add_item(self, item: dict[str, object]) -> Iterator[Delta]:
        """Mistral sends reasoning as items of the content."""
        thinking = item.get("thinking")
        if isinstance(thinking, list):
            yield from self._add_reasoning(
                "".join(str(inner.get("text", "")) for inner in thinking if isinstance(inner, dict))
            )
        elif isinstance(item.get("text"), str):
            yield from self._add_text(str(item["text"]))

    def _add_reasoning(self, text: str) -> Iterator[Delta]:
        if text:
            self._reasoning.append(text)
            yield ReasoningDelta(text)

    def _add_text(self, text: str) -> Iterator[Delta]:
        if text:
            self._text.append(text)
            yield TextDelta(text)

    def _add_detail(self, detail: dict[str, object]) -> None:
        """Join the pieces of one detail; the server expects the joined detail back."""
        last = self._details[-1] if self._details else None
        if last is None or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in {"text", "summary", "data"} and isinstance(value, str):
                last[key] = f"{last.get(key) or ''}{value}"
            elif value is not None:
                last[key] = value

    def _find_call(self, piece: _Call) -> _PendingCall:
        """The call that a piece belongs to: a name with another id starts a new call, whatever its index."""
        named = piece.function is not None and bool(piece.function.name)
        if piece.index is None:
            current = self._calls[-1] if self._calls and not (named or piece.id) else None
        else:
            current = self._by_index.get(piece.index)
        if current is None or (named and piece.id and current.id not in {"", piece.id}):
            current = _PendingCall()
            self._calls.append(current)
        if piece.index is not None:
            self._by_index[piece.index] = current
        return current

    def _thoughts(self, extra: dict[str, dict[str, object]]) -> list[Reasoning]:
        opaque = {"server": self._server}
        if self._field:
            opaque["field"] = self._field
        if self._details:
            opaque["reasoning_details"] = json.dumps(self._details)
        if extra:
            opaque["extra_content"] = json.dumps(extra)
        text = "".join(self._reasoning)
        return [Reasoning(text, NAME, opaque)] if text or len(opaque) > 1 else []

    def _usage_total(self) -> Usage:
        usage = self._usage
        cost = read_number(usage, "cost")
        return Usage(
            tokens_in=read_count(usage, "prompt_tokens"),
            tokens_out=read_count(usage, "completion_tokens"),
            cache_read=read_count(usage, "prompt_tokens_details", "cached_tokens")
            or read_count(usage, "prompt_cache_hit_tokens"),
            cache_write=read_count(usage, "prompt_tokens_details", "cache_write_tokens"),
            reasoning=read_count(usage, "completion_tokens_details", "reasoning_tokens"),
            cost=None if cost is None else float(cost),
        )
