"""The texts at the start of a chat: model, session, and its latest exchanges."""

from collections.abc import Sequence

from holdfast.cli.chat.output.status_line import abbreviate
from holdfast.cli.chat.session_state import ChatState
from holdfast.clock import format_local_time
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ToolEnded, ToolStarted, TurnEnded, TurnStarted, UserSaid
from holdfast.model.goal import describe_goal
from holdfast.model.sanitize import one_line
from holdfast.model.session import Session, messages, standing
from holdfast.model.text import counted
from holdfast.settings import EMBEDDED_MODEL, Settings

EMBEDDED_HINT = """This small embedded model needs no key. It is for trying things out and knows little.
For a better one, set OPENAI_API_KEY or ANTHROPIC_API_KEY, or `model` in {file}."""
SHOWN_EVENTS = (UserSaid, ModelSaid, ToolStarted, ToolEnded, TurnStarted, TurnEnded)
EXCHANGES = 3
"""Turns shown when a session is resumed."""


def startup_text(model: str, settings: Settings) -> str:
    lines = [f"Holdfast · {model} · /help lists commands · Ctrl-D quits · everything is saved"]
    if model == EMBEDDED_MODEL:
        lines.append(EMBEDDED_HINT.format(file=abbreviate(settings.home / "config.toml")))
    return "\n".join(lines)


def model_name(first: tuple[Session, list[Entry]] | None, otherwise: str) -> str:
    """The model of the resumed session, or the default."""
    return (first[0].summary.model if first is not None else None) or otherwise


def session_header(session: Session, state: ChatState, worker_id: str) -> str:
    """The session id, title, verified message count, and the other terminal that has it open."""
    count = session.summary.message_count
    title = f" “{one_line(session.summary.title)}”" if session.summary.title else ""
    lines = [f"Session {session.id}{title}: {counted(count, 'message')}, verified (hash {session.hash[:12]}…)"]
    if state.goal is not None:
        lines += [f"Goal: {one_line(state.goal.text)}", f"The goal is {describe_goal(state.goal)}"]
    owner = state.owner
    if owner is not None and owner.id != worker_id:
        where = f"{owner.whereabouts}, since {format_local_time(owner.started_at)}"
        lines.append(f"It is open in another terminal ({where}). You see its activity here and can type in both.")
        lines.append("/takeover asks that terminal to hand it over; if that terminal closes, the session moves here.")
    return "\n".join(lines)


def count_before(entries: Sequence[Entry], shown: Sequence[Entry]) -> int:
    """The number of messages before those shown."""
    first = shown[0].seq if shown else 0
    return sum(message.seq < first for message in messages(standing(entries)))


def earlier_messages(count: int) -> str:
    """A note about messages that are not shown; empty if there are none."""
    return f"{counted(count, 'earlier message')}; show them with /history" if count > 0 else ""


def last_exchanges(entries: Sequence[Entry]) -> list[Entry]:
    """The events of the latest turns, without rewound ones."""
    kept = standing(entries)
    starts = [n for n, entry in enumerate(kept) if isinstance(entry.event, TurnStarted)]
    if not starts:  # imported, without turns
        starts = [n for n, entry in enumerate(kept) if isinstance(entry.event, UserSaid)]
    first = starts[-EXCHANGES] if len(starts) >= EXCHANGES else 0
    return [entry for entry in kept[first:] if isinstance(entry.event, SHOWN_EVENTS)] if starts else []
