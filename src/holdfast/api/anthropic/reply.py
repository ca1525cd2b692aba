"""A turn in the format of the Messages API: its content blocks and its stream events."""

import json
from collections.abc import Iterator

from holdfast.api.openai.reply import ReplyState
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, Usage
from holdfast.model.message import Reasoning, ToolCall
from holdfast.providers.sanitize import parse_arguments

Document = dict[str, object]
STOP_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
"""Stop reason by the finish reason of a reply; any other is `end_turn`."""
SIGNATURE = "holdfast"
"""The signature of thinking blocks. It has no meaning: clients send thinking back, and the log has the model's own."""
PING: Document = {"type": "ping"}


class MessageEvents:
    """Folds the events of a turn into content blocks; each step yields the stream events for them."""

    def __init__(
        self, turn_id: str, model: str, reply: ReplyState, *, shows_thinking: bool, receives_live: bool
    ) -> None:
        self.content: list[Document] = []
        self._id = f"msg_{turn_id.removeprefix('turn-')}"
        self._model = model
        self._reply = reply
        self._shows_thinking = shows_thinking
        self._receives_live = receives_live
        self._sent = 0
        """Characters of the reply that are in blocks."""
        self._open = ""
        """The type of the block that is being sent."""
        self._thought = ""
        """Thinking sent of the current reply of the model."""
        self._committed = 0
        """The event of the last complete reply: live text from before it was part of that reply."""

    def begin(self) -> Iterator[Document]:
        """Yield the events before the reply. The usage is known at the end."""
        message = self._message([], None, usage_document(Usage()))
        yield {"type": "message_start", "message": message}
        yield PING

    def take(self, item: Entry | LiveText) -> None:
        """Add an item and discard its events."""
        for _ in self.add(item):
            pass

    def add(self, item: Entry | LiveText) -> Iterator[Document]:
        """Yield the stream events for an event or live text that was added to the reply."""
        yield from self._thinking(item)
        if text := self._reply.text[self._sent :]:
            self._sent += len(text)
            yield from self._extend("text", text)

    def _thinking(self, item: Entry | LiveText) -> Iterator[Document]:
        if isinstance(item, LiveText):
            if item.kind == "restarted":
                self._thought = ""
            elif item.kind == "reasoning" and self._receives_live and item.behind >= self._committed:
                yield from self._think(item.text)
            return
        if isinstance(item.event, ModelSaid):
            thought = "".join(part.text for part in item.event.parts if isinstance(part, Reasoning))
            if not item.event.partial and thought.startswith(self._thought):
                yield from self._think(thought[len(self._thought) :])
            self._thought, self._committed = "", item.seq

    def _think(self, text: str) -> Iterator[Document]:
        self._thought += text
        if self._shows_thinking and text:
            yield from self._extend("thinking", text)

    def _extend(self, kind: str, text: str) -> Iterator[Document]:
        """Add text to the block of this type, which is begun if another one is open."""
        if self._open != kind:
            yield from self._close()
            block: Document = {"type": "text", "text": "", "citations": None}
            if kind == "thinking":
                block = {"type": "thinking", "thinking": "", "signature": ""}
            yield self._start(block)
            self.content.append(block)
            self._open = kind
        self.content[-1][kind] = f"{self.content[-1][kind]}{text}"
        yield self._delta({"type": f"{kind}_delta", kind: text})

    def _close(self) -> Iterator[Document]:
        if not self._open:
            return
        if self._open == "thinking":
            self.content[-1]["signature"] = SIGNATURE
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        yield {"type": "content_block_stop", "index": len(self.content) - 1}
        self._open = ""

    def _start(self, block: Document) -> Document:
        return {"type": "content_block_start", "index": len(self.content), "content_block": dict(block)}

    def _delta(self, delta: Document) -> Document:
        return {"type": "content_block_delta", "index": len(self.content) - 1, "delta": delta}

    def finish(self) -> Iterator[Document]:
        """Yield the calls of the client's tools and the end of the stream."""
        yield from self._close()
        for call in self._reply.calls:
            yield from self._call(call)
        stop = self._stop_reason()
        delta = {"container": None, "stop_details": _stop_details(stop), "stop_reason": stop, "stop_sequence": None}
        assert self._reply.ended is not None, "the turn was followed to its end"
        used = usage_document(self._reply.ended.usage)
        names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        usage = {name: used[name] for name in (*names, "output_tokens_details", "server_tool_use")}
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}

    def _call(self, call: ToolCall) -> Iterator[Document]:
        given = parse_arguments(call.arguments)
        block: Document = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        block |= {"caller": {"type": "direct"}, "toolset_name": None}
        yield self._start(block)
        self.content.append({**block, "input": given})
        yield self._delta({"type": "input_json_delta", "partial_json": json.dumps(given)})
        yield {"type": "content_block_stop", "index": len(self.content) - 1}

    def document(self) -> Document:
        """The complete message; `finish` has been called."""
        assert self._reply.ended is not None, "the turn was followed to its end"
        return self._message(self.content, self._stop_reason(), usage_document(self._reply.ended.usage))

    def _stop_reason(self) -> str:
        return STOP_REASONS.get(self._reply.finish, "end_turn")

    def _message(self, content: list[Document], stop: str | None, usage: Document) -> Document:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "container": None,
            "diagnostics": None,
            "stop_details": _stop_details(stop),
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }


def _stop_details(stop: str | None) -> Document | None:
    return {"type": "refusal", "category": None, "explanation": None} if stop == "refusal" else None


def usage_document(used: Usage) -> Document:
    """The usage of a turn. What was read from or written to the cache is not among the input tokens."""
    return {
        "input_tokens": max(0, used.tokens_in - used.cache_read - used.cache_write),
        "output_tokens": used.tokens_out,
        "cache_creation_input_tokens": used.cache_write,
        "cache_read_input_tokens": used.cache_read,
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": used.cache_write},
        "output_tokens_details": {"thinking_tokens": used.reasoning},
        "server_tool_use": None,
        "service_tier": None,
        "inference_geo": None,
        "speed": None,
    }
