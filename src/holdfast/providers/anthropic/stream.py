"""Assembles the events of a Messages stream into a reply. Pure: no network."""

import json
from collections.abc import Iterator

import msgspec

from holdfast.model.errors import BadReply
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text
from holdfast.model.provider import Delta, ModelReply, ModelRequest, ReasoningDelta, TextDelta
from holdfast.providers.anthropic.request import NAME
from holdfast.providers.error_mapping import ProviderErrorResponse
from holdfast.providers.reply_builder import CallIdAllocator, VendorCall, build_reply, read_count
from holdfast.providers.sse_parser import decode_event

FINISHES = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
"""Any other reason means `stop`."""


class _Content(msgspec.Struct, frozen=True):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: object = None


class _AnthropicDelta(msgspec.Struct, frozen=True):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, frozen=True):
    model: str | None = None
    usage: dict[str, object] | None = None


class _Event(msgspec.Struct, frozen=True):
    index: int = 0
    message: _Message | None = None
    content_block: _Content | None = None
    delta: _AnthropicDelta | None = None
    usage: dict[str, object] | None = None
    error: object = None


_decoder = msgspec.json.Decoder(_Event)


class _Block:
    """A block that is still being streamed."""

    def __init__(self, content: _Content) -> None:
        self.kind = content.type or ""
        self.text = content.text or content.thinking or ""
        self.signature = content.signature or ""
        self.data = content.data or ""
        self.id = content.id or ""
        self.name = content.name or ""
        self.input = content.input
        self.json = ""

    def add(self, delta: _AnthropicDelta) -> None:
        self.text += delta.text or delta.thinking or ""
        self.signature += delta.signature or ""
        self.json += delta.partial_json or ""

    def made(self) -> VendorCall:
        return VendorCall(self.id, self.name, self.json or (json.dumps(self.input) if self.input else ""))


class AnthropicReply:
    """A reply that is being streamed. `prefix` is the fingerprint of the request, stored with its thinking."""

    def __init__(self, request: ModelRequest, *, server: str, prefix: str, who: str, call_ids: CallIdAllocator) -> None:
        self._model = request.model
        self._kept = {"server": server, "prefix": prefix}
        self._who = who
        self._call_ids = call_ids
        self._blocks: dict[int, _Block] = {}
        self._finish = ""
        self._usage: dict[str, object] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the stop reason has arrived."""
        return bool(self._finish)

    def add(self, data: bytes) -> Iterator[Delta]:
        """Add one event and return the deltas to show. Raises BadReply for an invalid event, ProviderErrorResponse for an error."""
        read = decode_event(data, _decoder, who=self._who)
        if read.error:
            raise ProviderErrorResponse(None, {}, data)
        if read.message is not None:
            self._model = read.message.model or self._model
            self._count(read.message.usage)
        self._count(read.usage)
        if read.content_block is not None:
            block = self._blocks[read.index] = _Block(read.content_block)
            yield from _delta(block.kind, block.text)
        if read.delta is not None:
            self._finish = read.delta.stop_reason or self._finish
            yield from self._add_delta(read.index, read.delta)

    def reply(self) -> ModelReply:
        """The complete reply. Raises BadReply if it is incomplete or empty, Refused for a refusal without text."""
        if not self._finish:
            raise BadReply(f"{self._who} ended the stream before the reply was complete: try again")
        finish = FINISHES.get(self._finish, "stop")
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = self._call_ids.calls([b.made() for b in blocks if b.kind == "tool_use"], cut=finish == "length")
        parts: list[Part] = [part for block in blocks for part in self._part(block)]
        parts += calls.values()
        return build_reply(parts, model=self._model, finish=finish, usage=self._usage_total(), who=self._who)

    def _add_delta(self, index: int, delta: _AnthropicDelta) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is not None and delta.type:
            block.add(delta)
            yield from _delta(block.kind, delta.text or delta.thinking or "")

    def _part(self, block: _Block) -> list[Part]:
        if block.kind == "text":
            return [Text(block.text)]
        if block.kind == "redacted_thinking":
            return [Reasoning("", NAME, {**self._kept, "data": block.data})]
        if block.kind == "thinking":
            return [Reasoning(block.text, NAME, {**self._kept, "signature": block.signature})]
        return []

    def _count(self, usage: dict[str, object] | None) -> None:
        """Later counts are totals and replace the earlier ones."""
        self._usage.update({key: value for key, value in (usage or {}).items() if value is not None})

    def _usage_total(self) -> Usage:
        usage = self._usage
        read, written = read_count(usage, "cache_read_input_tokens"), read_count(usage, "cache_creation_input_tokens")
        return Usage(
            tokens_in=read_count(usage, "input_tokens") + read + written,
            tokens_out=read_count(usage, "output_tokens"),
            cache_read=read,
            cache_write=written,
            reasoning=read_count(usage, "output_tokens_details", "thinking_tokens"),
        )


def _delta(kind: str, text: str) -> Iterator[Delta]:
    if text and kind == "text":
        yield TextDelta(text)
    elif text and kind == "thinking":
        yield ReasoningDelta(text)
