"""Converts the events of an ended turn to the spans of its trace. Pure: the same events give the same spans with the same ids.

The names and attributes follow OpenTelemetry's semantic conventions for generative AI. The turn is the root span; its
model calls and tool calls are children. A turn that was recovered has a span per attempt, each linked to the one before.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Compacted,
    CompactionFailed,
    ModelCalled,
    ModelSaid,
    Quarantined,
    Recovered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Content, Part, Reasoning, Text, ToolCall

AGENT = "holdfast"
WORKER_LOST = "worker_lost"
"""The error type of work whose worker died."""
MAX_CONTENT = 16_384
"""Characters of a message in an attribute; collectors reject very long ones."""

SpanKind = Literal["internal", "client"]
Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened at one moment of a span."""

    name: str
    at: int
    attributes: Attributes = {}


class Span(msgspec.Struct, kw_only=True):
    """A span. Times are microseconds since 1970; `error` is the error type, empty for a success."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    start: int
    end: int = 0
    kind: SpanKind = "internal"
    attributes: Attributes = {}
    events: list[SpanEvent] = []
    link: bytes | None = None
    """The span that this one repeats, or whose turn delegated this one."""
    link_trace: bytes | None = None
    """The trace of that span, if it is another one."""
    error: str = ""
    message: str = ""


class TraceSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The session of a turn, as far as its trace says it."""

    session_id: str
    model: str
    source: str
    content: bool = False
    """Whether attributes contain messages, arguments and results."""
    delegated_by: tuple[str, str] | None = None
    """The session and the turn that delegated the turn to this session."""


def trace_id(session_id: str, turn_id: str) -> bytes:
    return hashlib.sha256(f"trace {session_id} {turn_id}".encode()).digest()[:16]


def span_id(session_id: str, turn_id: str, part: str) -> bytes:
    """The id of a part of a turn; the root is the part `turn`."""
    return hashlib.sha256(f"span {session_id} {turn_id} {part}".encode()).digest()[:8]


def turn_spans(subject: TraceSubject, entries: Sequence[Entry]) -> list[Span]:
    """The spans of a turn, the root first. `entries` begin with its start; those of other work are skipped."""
    started = entries[0].event
    assert isinstance(started, TurnStarted), "a trace begins with the start of its turn"
    return _TurnTrace(subject, started, entries[0].at).read(entries)


class _TurnTrace:
    """Builds the trace of one turn from its events, in order."""

    def __init__(self, subject: TraceSubject, started: TurnStarted, at: int) -> None:
        self._subject = subject
        self._turn_id = started.turn_id
        self._model = started.terms.model or subject.model
        self._root = self._span("turn", f"invoke_agent {AGENT}", at, None)
        self._root.attributes |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": AGENT}
        self._root.attributes |= {**_model_attributes(self._model), "holdfast.session.source": subject.source}
        if subject.delegated_by is not None:
            parent, turn = subject.delegated_by
            self._root.link, self._root.link_trace = span_id(parent, turn, "turn"), trace_id(parent, turn)
            self._root.attributes["holdfast.session.delegated_by"] = parent
        self._spans = [self._root]
        self._parent = self._root
        self._tools: dict[str, Span] = {}
        self._arguments: dict[str, str] = {}
        self._input: list[dict[str, object]] = []
        self._ready_at = self._seen_at = at
        """When the model could be called, and the time of the newest event of the turn."""

    def read(self, entries: Sequence[Entry]) -> list[Span]:
        for entry in entries:
            if getattr(entry.event, "turn_id", "") == self._turn_id:
                self._add(entry)
                self._seen_at = entry.at
        self._root.end = self._seen_at
        return self._spans

    def _add(self, entry: Entry) -> None:
        event, at = entry.event, entry.at
        match event:
            case UserSaid():
                self._ready_at = at
                self._input.append({"role": "user", "parts": _content(event.parts)})
            case ModelSaid():
                self._add_model_call(entry.seq, at, event)
            case ModelCalled():
                self._add_other_call(entry.seq, at, event)
            case ToolStarted():
                self._start_tool(event, at)
            case ToolEnded():
                self._end_tool(entry.seq, at, event)
            case Recovered():
                self._begin_attempt(at, event)
            case ApprovalAsked():
                self._note("approval_asked", at, {"gen_ai.tool.call.id": event.call_id})
            case ApprovalAnswered():
                self._note("approval_answered", at, {"gen_ai.tool.call.id": event.call_id, "allowed": event.allowed})
            case Compacted():
                sizes: Attributes = {"tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
                self._note("compacted", at, {"epoch": event.epoch, **sizes})
                self._ready_at = at
            case CompactionFailed():
                self._note("compaction_failed", at, {"reason": event.reason})
                self._ready_at = at
            case Quarantined():
                self._note("quarantined", at, {"reason": event.reason})
            case TurnEnded():
                self._end_turn(at, event)
            case _:
                pass

    def _add_model_call(self, seq: int, at: int, event: ModelSaid) -> None:
        """Add the span of a model call: from the moment it could begin to the commit of its reply."""
        span = self._span(
            f"model {seq}", f"chat {_model_name(event.model or self._model)}", self._ready_at, self._parent
        )
        span.kind, span.end = "client", at
        called = _model_attributes(event.called or self._model)
        span.attributes |= {"gen_ai.operation.name": "chat", **called, **_usage(event.usage)}
        if event.model:
            span.attributes["gen_ai.response.model"] = _model_name(event.model)
        if event.finish:
            span.attributes["gen_ai.response.finish_reasons"] = (event.finish,)
        if event.partial:
            span.error, span.message = "interrupted", "the reply was cut off; its beginning is kept"
        self._arguments |= {part.id: part.arguments for part in event.parts if isinstance(part, ToolCall)}
        if self._subject.content:
            reply: list[dict[str, object]] = [{"role": "assistant", "parts": _content(event.parts)}]
            span.attributes["gen_ai.input.messages"] = _as_json(self._input)
            span.attributes["gen_ai.output.messages"] = _as_json(reply)
        self._input = []
        self._spans.append(span)
        self._ready_at = at

    def _add_other_call(self, seq: int, at: int, event: ModelCalled) -> None:
        """Add the span of a call beside the conversation, such as one for a summary: from the event before it."""
        model = event.model or self._model
        span = self._span(f"model {seq}", f"chat {_model_name(model)}", self._seen_at, self._parent)
        span.kind, span.end = "client", at
        span.attributes |= {"gen_ai.operation.name": "chat", **_model_attributes(model), **_usage(event.usage)}
        span.attributes["holdfast.call.purpose"] = event.purpose
        self._spans.append(span)

    def _start_tool(self, event: ToolStarted, at: int) -> None:
        if (cut_off := self._tools.pop(event.call_id, None)) is not None:
            self._fail(cut_off, self._seen_at)
        span = self._tool_span(f"tool {event.call_id} {event.attempt}", event.name, event.call_id, at)
        self._tools[event.call_id] = span

    def _end_tool(self, seq: int, at: int, event: ToolEnded) -> None:
        """End the span of a call. A call that never started, because it was denied, has a span without a length."""
        span = self._tools.pop(event.call_id, None) or self._tool_span(f"tool {seq}", event.name, event.call_id, at)
        span.end = at
        span.attributes["holdfast.tool.outcome"] = event.outcome
        if event.outcome != "ok":
            span.error = event.outcome
        if self._subject.content:
            span.attributes["gen_ai.tool.call.arguments"] = self._arguments.get(event.call_id, "")[:MAX_CONTENT]
            span.attributes["gen_ai.tool.call.result"] = _text(event.parts)[:MAX_CONTENT]
        response = {"type": "tool_call_response", "id": event.call_id, "response": _text(event.parts)}
        self._input.append({"role": "tool", "parts": [response]})
        self._ready_at = at

    def _begin_attempt(self, at: int, event: Recovered) -> None:
        """End the attempt of the dead worker with its last event, and begin a new one that is linked to it."""
        if self._parent is self._root:
            self._parent = self._attempt_of_calls(1, self._root.start)
        lost = self._parent
        self._fail(lost, self._seen_at)
        attempt = event.attempt + 1
        self._parent = self._span(f"attempt {attempt} {at}", f"attempt {attempt}", at, self._root)
        self._parent.link = lost.span_id
        self._spans.append(self._parent)
        self._ready_at = at
        action: Attributes = {"action": event.action, "evidence": event.evidence, "worker_id": event.worker_id}
        self._note("recovered", at, action)

    def _attempt_of_calls(self, number: int, start: int) -> Span:
        """Put the calls so far below a span of their own, because another attempt follows."""
        attempt = self._span(f"attempt {number}", f"attempt {number}", start, self._root)
        for span in self._spans[1:]:
            span.parent_id = attempt.span_id
        self._spans.insert(1, attempt)
        return attempt

    def _end_turn(self, at: int, event: TurnEnded) -> None:
        for span in self._tools.values():
            self._fail(span, at)
        if self._parent is not self._root:
            self._parent.end = at
        self._root.attributes |= {"holdfast.turn.outcome": event.outcome, **_usage(event.usage)}
        if event.outcome != "done":
            self._root.error, self._root.message = event.code or event.outcome, event.reason

    def _tool_span(self, part: str, name: str, call_id: str, at: int) -> Span:
        span = self._span(part, f"execute_tool {name}", at, self._parent)
        span.attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        span.attributes |= {"gen_ai.tool.call.id": call_id, "gen_ai.tool.type": "function"}
        self._spans.append(span)
        return span

    def _fail(self, span: Span, at: int) -> None:
        span.end, span.error, span.message = at, WORKER_LOST, "the worker died before this was finished"

    def _note(self, name: str, at: int, attributes: Attributes) -> None:
        self._root.events.append(SpanEvent(f"holdfast.{name}", at, attributes))

    def _span(self, part: str, name: str, start: int, parent: Span | None) -> Span:
        session_id, turn_id = self._subject.session_id, self._turn_id
        return Span(
            name=name,
            trace_id=trace_id(session_id, turn_id),
            span_id=span_id(session_id, turn_id, part),
            parent_id=None if parent is None else parent.span_id,
            start=start,
            attributes={"gen_ai.conversation.id": session_id, "holdfast.turn.id": turn_id},
            events=[],
        )


def _model_attributes(model: str) -> Attributes:
    provider = model.partition(":")[0]
    return {"gen_ai.provider.name": provider, "gen_ai.request.model": _model_name(model)} if ":" in model else {}


def _model_name(model: str) -> str:
    """The name without the provider."""
    return model.partition(":")[2] or model


def _usage(usage: Usage) -> Attributes:
    found: Attributes = {
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }
    return found if usage.cost is None else {**found, "holdfast.usage.cost_usd": usage.cost}


def _content(parts: Sequence[Part]) -> list[dict[str, object]]:
    """Parts of a message as the conventions write them. Images and files are only named."""
    found: list[dict[str, object]] = []
    for part in parts:
        match part:
            case Text():
                found.append({"type": "text", "content": part.text})
            case Reasoning():
                found.append({"type": "reasoning", "content": part.text})
            case ToolCall():
                call = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
                found.append({**call})
            case _:
                found.append({"type": type(part).__name__.lower()})
    return found


def _text(parts: Sequence[Content]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _as_json(messages: list[dict[str, object]]) -> str:
    return json.dumps(messages, ensure_ascii=True)[:MAX_CONTENT]
