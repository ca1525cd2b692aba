"""What is shown first: with which model one talks, which session this is, that it is whole, and how it went on last."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.chat.state import State
from holdfast.interop.visible import one_line
from holdfast.model.counted import counted
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ToolEnded, ToolStarted, TurnEnded, TurnStarted, UserSaid
from holdfast.model.session import Session, standing
from holdfast.settings import EMBEDDED_MODEL, Settings
from holdfast.slash.lines import day

HINT = """This very small model runs inside Holdfast, without a key: it shows how things work and knows little.
For a better one set OPENAI_API_KEY or ANTHROPIC_API_KEY, or `model` in {file}."""
TOLD = (UserSaid, ModelSaid, ToolStarted, ToolEnded, TurnStarted, TurnEnded)
EXCHANGES = 3
"""Turns that are shown when a session is taken up."""


def greeting(model: str, settings: Settings) -> str:
    lines = [f"Holdfast, with {model}. /help lists commands; Ctrl-D leaves; everything is kept."]
    if model == EMBEDDED_MODEL:
        lines.append(HINT.format(file=_short(settings.home / "config.toml")))
    return "\n".join(lines)


def model_of(first: tuple[Session, list[Entry]] | None, otherwise: str) -> str:
    """With which model one talks: that of the session which is taken up, if there is one."""
    return (first[0].summary.model if first is not None else None) or otherwise


def _short(path: Path) -> str:
    """The path as a person would write it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def welcome(session: Session, state: State, worker_id: str) -> str:
    """Which session this is, that all of it is here, and whose it is."""
    count = session.summary.message_count
    title = f" “{one_line(session.summary.title)}”" if session.summary.title else ""
    lines = [
        f"Session {session.id}{title}: {counted(count, 'message')}, all of them here (proved by hash {session.hash[:12]}…)"
    ]
    owner = state.owner
    if owner is not None and owner.id != worker_id:
        where = f"{owner.whereabouts}, since {day(owner.started_at)}"
        lines.append(f"It is open in another terminal ({where}). You see what happens there, and can talk in both.")
        lines.append("/takeover asks for it; if that terminal goes away, it is open here by itself.")
    return "\n".join(lines)


def last_exchanges(entries: Sequence[Entry]) -> list[Entry]:
    """The newest turns that still count."""
    kept = standing(entries)
    starts = [n for n, entry in enumerate(kept) if isinstance(entry.event, TurnStarted)]
    if not starts:  # taken from elsewhere, where there are no turns
        starts = [n for n, entry in enumerate(kept) if isinstance(entry.event, UserSaid)]
    first = starts[-EXCHANGES] if len(starts) >= EXCHANGES else 0
    return [entry for entry in kept[first:] if isinstance(entry.event, TOLD)] if starts else []
