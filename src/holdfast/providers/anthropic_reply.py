"""The events of a Messages stream, added up to a reply. Pure: no SDK, no network."""

import json
from collections.abc import Iterator

import msgspec

from holdfast.model.asking import Delta, ReasoningDelta, Reply, Request, TextDelta
from holdfast.model.errors import BadReply
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text
from holdfast.providers.anthropic_wire import NAME
from holdfast.providers.reply import Called, Made, counted, finished

FINISHES = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
"""Any other reason is a plain stop."""


class _Content(msgspec.Struct, frozen=True):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: object = None


class _Delta(msgspec.Struct, frozen=True):
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
    delta: _Delta | None = None
    usage: dict[str, object] | None = None


class _Block:
    """A block that is still being told."""

    def __init__(self, content: _Content) -> None:
        self.kind = content.type or ""
        self.text = content.text or content.thinking or ""
        self.signature = content.signature or ""
        self.data = content.data or ""
        self.id = content.id or ""
        self.name = content.name or ""
        self.input = content.input
        self.json = ""

    def add(self, delta: _Delta) -> None:
        self.text += delta.text or delta.thinking or ""
        self.signature += delta.signature or ""
        self.json += delta.partial_json or ""

    def made(self) -> Made:
        return Made(self.id, self.name, self.json or (json.dumps(self.input) if self.input else ""))


class Draft:
    """A reply in the making. `prefix` is the fingerprint of the request, kept beside its thinking."""

    def __init__(self, request: Request, *, server: str, prefix: str, who: str, called: Called) -> None:
        self._model = request.model
        self._kept = {"server": server, "prefix": prefix}
        self._who = who
        self._called = called
        self._blocks: dict[int, _Block] = {}
        self._finish = ""
        self._usage: dict[str, object] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the model has said why it stopped."""
        return bool(self._finish)

    def add(self, event: object) -> Iterator[Delta]:
        """Take one event and give what there is to show. Raises BadReply for one that makes no sense."""
        try:
            read = msgspec.convert(event, _Event)
        except msgspec.ValidationError as e:
            raise BadReply(f"{self._who} sent a piece that cannot be read ({e}): ask again") from e
        if read.message is not None:
            self._model = read.message.model or self._model
            self._count(read.message.usage)
        self._count(read.usage)
        if read.content_block is not None:
            block = self._blocks[read.index] = _Block(read.content_block)
            yield from _shown(block.kind, block.text)
        if read.delta is not None:
            self._finish = read.delta.stop_reason or self._finish
            yield from self._hear(read.index, read.delta)

    def reply(self) -> Reply:
        """The whole reply. Raises BadReply for one that is cut off or empty, Refused for a bare refusal."""
        if not self._finish:
            raise BadReply(f"{self._who} broke off in mid-reply: ask again")
        finish = FINISHES.get(self._finish, "stop")
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = self._called.calls([b.made() for b in blocks if b.kind == "tool_use"], cut=finish == "length")
        parts: list[Part] = [part for block in blocks for part in self._part(block)]
        parts += calls.values()
        return finished(parts, model=self._model, finish=finish, usage=self._counted(), who=self._who)

    def _hear(self, index: int, delta: _Delta) -> Iterator[Delta]:
        block = self._blocks.get(index)
        if block is not None and delta.type:
            block.add(delta)
            yield from _shown(block.kind, delta.text or delta.thinking or "")

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

    def _counted(self) -> Usage:
        usage = self._usage
        read, written = counted(usage, "cache_read_input_tokens"), counted(usage, "cache_creation_input_tokens")
        return Usage(
            tokens_in=counted(usage, "input_tokens") + read + written,
            tokens_out=counted(usage, "output_tokens"),
            cache_read=read,
            cache_write=written,
            reasoning=counted(usage, "output_tokens_details", "thinking_tokens"),
        )


def _shown(kind: str, text: str) -> Iterator[Delta]:
    if text and kind == "text":
        yield TextDelta(text)
    elif text and kind == "thinking":
        yield ReasoningDelta(text)
