"""Converts committed events to log records, each with the trace of its turn. Pure."""

from typing import Literal

import msgspec

from holdfast.model.entry import Entry, encode
from holdfast.model.event import CompactionFailed, Ended, InputRefused, Quarantined, Recovered, ToolEnded, TurnEnded
from holdfast.telemetry.turn_spans import MAX_CONTENT, Attributes, span_id, trace_id

Severity = Literal["info", "warn", "error"]


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A log record. `body` is the event as JSON, only if content is exported."""

    name: str
    at: int
    severity: Severity
    attributes: Attributes
    body: str = ""
    trace_id: bytes = b""
    span_id: bytes = b""


def log_record(session_id: str, entry: Entry, *, content: bool) -> LogRecord:
    turn_id: str = getattr(entry.event, "turn_id", "")
    attributes: Attributes = {"gen_ai.conversation.id": session_id, "holdfast.event.seq": entry.seq}
    return LogRecord(
        name=f"holdfast.{entry.kind}",
        at=entry.at,
        severity=_severity(entry),
        attributes={**attributes, "holdfast.turn.id": turn_id} if turn_id else attributes,
        body=encode(entry.event)[:MAX_CONTENT] if content else "",
        trace_id=trace_id(session_id, turn_id) if turn_id else b"",
        span_id=span_id(session_id, turn_id, "turn") if turn_id else b"",
    )


def _severity(entry: Entry) -> Severity:
    match entry.event:
        case TurnEnded(outcome="failed") | Quarantined() | Ended(reason="error"):
            return "error"
        case Recovered() | CompactionFailed() | InputRefused() | Ended(reason="reaped" | "recovered"):
            return "warn"
        case ToolEnded(outcome="unknown"):
            return "warn"
        case _:
            return "info"
