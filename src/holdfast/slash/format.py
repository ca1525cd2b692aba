"""Formats sessions, messages and decisions as lines of text."""

from collections.abc import Sequence

from holdfast.clock import format_local_time
from holdfast.engine.decisions import Decision
from holdfast.model.errors import Invalid
from holdfast.model.message import Message, Reasoning
from holdfast.model.sanitize import one_line, visible
from holdfast.model.session import Session
from holdfast.model.text import parse_decimal

MICROSECONDS = 1_000_000
HOUR, DAY = 3600, 86_400
UNITS = (("min", 60, HOUR), ("h", HOUR, DAY), ("d", DAY, 31 * DAY))
"""Units of a relative time, with their size and the number of seconds up to which they are used."""
ROLE_NAMES = {"user": "you", "assistant": "agent", "tool": "tool"}
END_REASONS = {
    "cli_close": "closed",
    "session_reset": "reset",
    "cron_complete": "schedule finished",
    "batch_complete": "batch finished",
    "compression": "compacted",
    "reaped": "worker died",
    "user": "ended by user",
}
"""Readable words for stored end reasons; the others are readable already."""


def describe_end(reason: str) -> str:
    """A stored end reason in readable words."""
    return END_REASONS.get(reason, reason)


def decision_line(decision: Decision) -> str:
    """A decision of `explain` in one line, with its evidence."""
    what = decision.what
    if decision.kind == "ended":
        what = f"ended: {describe_end(what.removeprefix('ended: '))}"
    evidence = f" ({decision.evidence})" if decision.evidence else ""
    return f"{format_local_time(decision.at)}  [{decision.seq}] {what}{evidence}"


def session_line(session: Session) -> str:
    """A session in a list: id, last use, message count, state, and its title or first message."""
    summary = session.summary
    state = describe_end(summary.end_reason or "") if session.state == "ended" else session.state
    name = one_line(summary.title or f"({summary.preview or 'no messages'})")
    return (
        f"{session.id}  {format_local_time(summary.updated_at)}  {summary.message_count:>4} messages  {state}  {name}"
    )


def relative_time(at: int, now: int) -> str:
    """How long ago, in the largest unit: `5 min ago`; for more than a month the date."""
    seconds = max(now - at, 0) // MICROSECONDS
    if seconds < 60:
        return "just now"
    for unit, size, limit in UNITS:
        if seconds < limit:
            return f"{seconds // size} {unit} ago"
    return format_local_time(at).partition(" ")[0]


def message_lines(said: Message) -> str:
    """A message in full, with its number and time."""
    cut = " (cut off)" if said.partial else ""
    pieces = [f"[{said.seq}] {ROLE_NAMES[said.role]} · {format_local_time(said.at)}{cut}"]
    pieces += [part.text for part in said.parts if isinstance(part, Reasoning) and part.text]
    if said.text:
        pieces.append(said.text)
    pieces += [f"→ {call.name} {call.arguments}" for call in said.tool_calls]
    return visible("\n".join(pieces))


def require_match(ref: str, ids: Sequence[str], missing: str) -> str:
    """The id that is meant: itself, or by a unique prefix. Raises Invalid, with `missing` if there is none."""
    matches = [ref] if ref in ids else [one for one in ids if one.startswith(ref)]
    if not matches:
        raise Invalid(missing)
    if len(matches) > 1:
        raise Invalid(f"{ref!r} is ambiguous: {', '.join(matches)}")
    return matches[0]


def parse_number(text: str, what: str, default: int) -> int:
    """Parse a positive number; the default for an empty text. Raises Invalid."""
    if not text:
        return default
    if not (number := parse_decimal(text)):
        raise Invalid(f"{text!r} is not {what}")
    return number
