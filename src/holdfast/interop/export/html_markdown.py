"""Renders a session for people: Markdown, or a self-contained HTML page without scripts."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template

from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, Ended, Forked
from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.sanitize import one_line, visible
from holdfast.model.session import Session, as_message
from holdfast.model.times import moment

NAMES = {"user": "You", "assistant": "Model", "tool": "Tool"}
# Only images that can neither run code nor load anything are embedded; the rest is a link or plain text.
EMBEDDABLE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
LINKABLE = re.compile(r"https?://[^\s<>\"']+")


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
                pieces += [f"Calls `{part.name}`:", "", _fenced(_arguments(part), "json"), ""]
            case ToolResult():
                pieces += [f"Result ({part.outcome}):", "", _fenced(_texts(part), ""), ""]
            case Image() | File():
                pieces += [f"[{_reference(part)}]", ""]
    return pieces


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def render_html(session: Session, entries: Sequence[Entry]) -> str:
    facts = "".join(f"<dt>{_safe(name)}</dt><dd>{_safe(value)}</dd>" for name, value in _facts(session))
    body = "\n".join(piece for entry in entries if (piece := _html_entry(entry)))
    template = Path(__file__).with_name("page.html").read_text("utf-8")
    return Template(template).substitute(title=_safe(session.display_title), facts=facts, body=body)


def _html_entry(entry: Entry) -> str:
    said = as_message(entry)
    if said is None:
        note = _note(entry)
        return f'<p class="note">{_safe(note)}</p>' if note else ""
    parts = "".join(_html_part(part) for part in said.parts)
    name = f"{NAMES[said.role]}<span>{_safe(_when(said.at) + _cut(said))}</span>"
    return f'<section class="{said.role}" id="{said.seq}"><h2>{name}</h2>{parts}</section>'


def _html_part(part: Part) -> str:
    match part:
        case Text():
            return f'<div class="text">{_safe(part.text)}</div>'
        case Reasoning():
            return f"<details><summary>Thoughts</summary><pre>{_safe(part.text)}</pre></details>" if part.text else ""
        case ToolCall():
            return f"<p>Calls <code>{_safe(part.name)}</code></p><pre>{_safe(_arguments(part))}</pre>"
        case ToolResult():
            return f"<p>Result ({_safe(part.outcome)})</p><pre>{_safe(_texts(part))}</pre>"
        case Image() if EMBEDDABLE.fullmatch(part.url):
            return f'<img alt="" src="{_safe(part.url)}">'
        case Image() | File() if LINKABLE.fullmatch(part.url):
            return f'<p><a rel="noreferrer" href="{_safe(part.url)}">{_safe(part.url)}</a></p>'
        case _:
            return f"<p>[{_safe(_reference(part))}]</p>"


def _safe(text: str) -> str:
    import html  # its table of entities loads slowly, and the chat needs only the plain text

    return html.escape(visible(text))


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
