"""Facts as outsiders see them: the JSON that commands print and the API answers with. `docs/commands.md` describes it."""

import json
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.message import Message, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.process import Process, Verdict
from holdfast.model.session import Session
from holdfast.model.times import iso

if TYPE_CHECKING:
    from holdfast.store.search import Hit

Json = dict[str, Any]

TIMES = ("created_at", "updated_at", "ended_at", "trashed_at")
SHOWN = (
    "title",
    "source",
    "channel",
    "model",
    "created_at",
    "updated_at",
    "ended_at",
    "end_reason",
    "state",
    "epoch",
    "seq",
    "hash",
    "message_count",
    "turn_count",
    "tokens_in",
    "tokens_out",
    "parent_id",
    "worker_id",
    "last_heartbeat_at",
    "preview",
    "side_of",
    "pinned",
    "trashed_at",
)


def session(found: Session) -> Json:
    """A session, as in the list."""
    values: Json = msgspec.structs.asdict(found.summary)
    values |= {name: time(values[name]) for name in TIMES}
    values |= {
        "state": found.state,
        "seq": found.seq,
        "hash": found.hash,
        "worker_id": found.worker_id,
        "last_heartbeat_at": time(found.last_heartbeat_at),
        "pinned": bool(found.summary.pinned),
    }
    return {"id": found.id} | {name: values[name] for name in SHOWN}


def message(said: Message) -> Json:
    """A message. `content` is a text, or the parts if some are not text; calls have the shape OpenAI gave them."""
    shape: Json = {
        "seq": said.seq,
        "role": said.role,
        "content": _content(said),
        "tool_calls": [_call(call) for call in said.tool_calls],
        "tool_call_id": None,
        "partial": said.partial,
        "at": iso(said.at),
        "turn_id": said.turn_id,
    }
    if thoughts := "".join(part.text for part in said.parts if isinstance(part, Reasoning)):
        shape["reasoning"] = thoughts
    for part in said.parts:
        if isinstance(part, ToolResult):
            shape |= {"tool_call_id": part.call_id, "outcome": part.outcome}
    return shape


def _content(said: Message) -> str | list[Json]:
    parts = [inner for part in said.parts for inner in (part.parts if isinstance(part, ToolResult) else (part,))]
    shown = [part for part in parts if not isinstance(part, Reasoning | ToolCall)]
    if all(isinstance(part, Text) for part in shown):
        return text_of(said.parts)
    return [msgspec.to_builtins(part) for part in shown]


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def event(entry: Entry) -> Json:
    """An event of the log."""
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "at": iso(entry.at),
        "hash": entry.hash,
        "body": msgspec.to_builtins(entry.event),
    }


def process(found: Process, seen: Verdict) -> Json:
    """A background process with what it is doing, as lists show it."""
    newest = found.track.newest
    return {
        "id": found.id,
        "session_id": found.session_id,
        "command": found.command,
        "workdir": found.workdir,
        "host": found.host,
        "pid": found.pid,
        "state": seen.kind,
        "evidence": seen.evidence,
        "blocks_reset": seen.blocks,
        "expired": seen.expired,
        "started_at": iso(found.started_at),
        "last_work_at": iso(found.track.worked_at),
        "last_work": found.track.work,
        "ttl_seconds": found.ttl_seconds,
        "members": newest.members if found.ended_at is None else 0,
        "listens": list(newest.listens) if found.ended_at is None else [],
        "cpu_seconds": newest.cpu,
        "output_bytes": newest.output,
        "ended_at": time(found.ended_at),
        "exit_code": found.exit_code,
        "end_reason": found.end_reason,
    }


def hit(found: "Hit", title: str | None) -> Json:
    """A place where words were found."""
    return {
        "session_id": found.session_id,
        "title": title,
        "seq": found.seq,
        "at": time(found.at),
        "kind": found.kind,
        "snippet": found.snippet,
        "marks": [list(mark) for mark in found.marks],
    }


def time(at: int | None) -> str | None:
    return None if at is None else iso(at)


def dump(value: object, *, indent: int | None = None) -> str:
    """JSON in ASCII: whatever a tool put out, lone surrogates included, can be printed anywhere."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)
