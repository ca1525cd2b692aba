"""The messages before which /rewind can go back, newest first."""

from collections.abc import Iterator

from holdfast.model.entry import Entry
from holdfast.model.event import TurnStarted, UserSaid
from holdfast.model.message import typed_text
from holdfast.model.sanitize import one_line
from holdfast.model.session import standing
from holdfast.model.text import counted, truncate
from holdfast.slash.context import CommandChoice
from holdfast.slash.format import relative_time
from holdfast.store.database import Transaction
from holdfast.store.repos import file_changes, log

OFFERED = 200
TEXT_CHARS = 60


def list_points(tx: Transaction, session_id: str, now: int) -> list[CommandChoice]:
    """One option for each of the newest turns; its value is an argument of /rewind."""
    turns = list(_turns(standing(log.read(tx, session_id))))[-OFFERED:]
    changes = file_changes.list_after(tx, session_id, turns[0][0] if turns else 0)
    found = []
    for seq, at, text in reversed(turns):
        files = len({change.path for change in changes if change.seq > seq})
        since = f" · {counted(files, 'file')} changed since" if files else ""
        found.append(CommandChoice(f"@{seq}", f"{text} · {relative_time(at, now)}{since}"))
    return found


def _turns(entries: list[Entry]) -> Iterator[tuple[int, int, str]]:
    """The first event of each turn, its time, and what was typed."""
    texts: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry.event, UserSaid):
            texts.setdefault(entry.event.turn_id, one_line(typed_text(entry.event.parts)).strip())
    for entry in entries:
        if isinstance(entry.event, TurnStarted):
            text = texts.get(entry.event.turn_id) or "(no text)"
            yield entry.seq, entry.at, truncate(text, TEXT_CHARS)
