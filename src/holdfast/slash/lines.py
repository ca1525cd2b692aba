"""Facts as lines that a person reads in a chat."""

from holdfast.interop.visible import one_line, visible
from holdfast.model.errors import Invalid
from holdfast.model.message import Message, Reasoning
from holdfast.model.session import Session
from holdfast.model.times import moment

NAMES = {"user": "you", "assistant": "agent", "tool": "tool"}


def day(at: int) -> str:
    """An instant in the person's own time zone."""
    return f"{moment(at).astimezone():%Y-%m-%d %H:%M}"


def session_line(session: Session) -> str:
    """A session in a list: its id, when it was used, what state it is in, and its title, or its first words in brackets."""
    summary = session.summary
    state = summary.end_reason if session.state == "ended" else session.state
    name = one_line(summary.title or f"({summary.preview or 'nothing was said'})")
    return f"{session.id}  {day(summary.updated_at)}  {summary.message_count:>4} messages  {state}  {name}"


def message_lines(said: Message) -> str:
    """A message with its place, whole."""
    cut = " (cut off)" if said.partial else ""
    pieces = [f"[{said.seq}] {NAMES[said.role]} · {day(said.at)}{cut}"]
    pieces += [part.text for part in said.parts if isinstance(part, Reasoning) and part.text]
    if said.text:
        pieces.append(said.text)
    pieces += [f"→ {call.name} {call.arguments}" for call in said.tool_calls]
    return visible("\n".join(pieces))


def number(text: str, what: str, default: int) -> int:
    """A positive number that was typed, or the default for nothing. Raises Invalid."""
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise Invalid(f"{text!r} is not {what}")
    return int(text)
