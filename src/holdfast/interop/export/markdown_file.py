"""Renders a session as Markdown, for people. `pages/document.py` renders it as HTML."""

import json
from collections.abc import Sequence

from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, Ended, Forked
from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.sanitize import one_line, visible
from holdfast.model.session import Session, as_message
from holdfast.model.text import fenced
from holdfast.model.times import moment

NAMES = {"user": "You", "assistant": "Model", "tool": "Tool"}


def render_markdown(session: Session, entries: Sequence[Entry]) -> str:
    pieces = [
        f"# {one_line(session.display_title)}",
        "",
        *(f"- {name}: {value}" for name, value in _facts(session)),
        "",
    ]
    for entry in entries:
        said = as_message(entry)
        if said is not None:
            pieces += [f"## {NAMES[said.role]} · {_when(said.at)}{_cut(said)}", "", *_markdown_parts(said.parts)]
        elif note := _note(entry):
            pieces += [f"*{note}*", ""]
    return visible("\n".join(pieces))


def _markdown_parts(parts: Sequence[Part]) -> list[str]:
    pieces: list[str] = []
    for part in parts:
        match part:
            case Text():
                pieces += [part.text, ""]
            case Reasoning():
                pieces += [*(f"> {line}" for line in part.text.splitlines()), ""] if part.text else []
            case ToolCall():
                pieces += [f"Calls `{part.name}`:", "", fenced(_arguments(part), "json"), ""]
            case ToolResult():
                pieces += [f"Result ({part.outcome}):", "", fenced(_texts(part)), ""]
            case Image() | File():
                pieces += [f"[{_reference(part)}]", ""]
    return pieces


def _facts(session: Session) -> list[tuple[str, str]]:
    summary = session.summary
    facts = [
        ("Session", session.id),
        ("Created", _when(summary.created_at)),
        ("Last activity", _when(summary.updated_at)),
        ("Model", summary.model),
        ("Messages", str(summary.message_count)),
    ]
    return [(name, value) for name, value in facts if value]


def _note(entry: Entry) -> str:
    match entry.event:
        case Compacted():
            return f"The context was compacted here (epoch {entry.event.epoch}); the log is complete."
        case Forked():
            return f"Forked from {entry.event.parent_id}: the messages above are from there."
        case Ended():
            return f"Ended: {entry.event.reason}."
        case _:
            return ""


def _when(at: int) -> str:
    return f"{moment(at):%Y-%m-%d %H:%M:%S} UTC"


def _cut(said: Message) -> str:
    return " · cut off" if said.partial else ""


def _arguments(call: ToolCall) -> str:
    try:
        return json.dumps(json.loads(call.arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return call.arguments


def _texts(result: ToolResult) -> str:
    return "\n".join(part.text if isinstance(part, Text) else f"[{_reference(part)}]" for part in result.parts)


def _reference(part: Part) -> str:
    match part:
        case Image():
            return f"image: {_short(part.url)}"
        case File():
            return f"file: {part.name or _short(part.url)}"
        case _:
            return ""


def _short(url: str) -> str:
    return url if len(url) <= 200 else f"{url[:60]}… ({len(url):,} characters)"
