"""The sessions that /resume offers: those of this directory first, and chats before others; each group most recent first."""

from pathlib import Path

from holdfast.model.sanitize import one_line
from holdfast.model.session import Session
from holdfast.slash.context import CommandChoice
from holdfast.slash.format import describe_end, relative_time
from holdfast.store.database import Transaction
from holdfast.store.repos import session_list, sessions

OFFERED = 500
"""The most recently used chats, and the most recently used sessions. Older ones can be found with /search."""
CHAT = "chat"
HERE = "this directory"


def load(tx: Transaction, workdir: Path, now: int, *, current: str | None) -> list[CommandChoice]:
    """The options, each with its source and, for a session of the directory, `HERE` as tags."""
    filters = session_list.SessionFilters(source=CHAT), session_list.SessionFilters()
    pages = [session_list.list_page(tx, one, limit=OFFERED).sessions for one in filters]
    found = {one.id: one for page in pages for one in page if one.id != current}
    choices = [_choice(tx, one, str(workdir), now) for one in found.values()]
    return sorted(choices, key=lambda choice: (HERE not in choice.tags, CHAT not in choice.tags))


def _choice(tx: Transaction, session: Session, workdir: str, now: int) -> CommandChoice:
    summary = session.summary
    opened = sessions.get_opened(tx, session.id)
    is_here = opened is not None and opened.workdir == workdir
    state = describe_end(summary.end_reason or "") if session.state == "ended" else session.state
    name = one_line(summary.title or f"({summary.preview or 'no messages'})")
    when = relative_time(summary.updated_at, now)
    place = " · here" if is_here else ""
    label = f"{name} · {when} · {summary.message_count} messages · {summary.source} · {state}{place} · {session.id}"
    return CommandChoice(session.id, label, (HERE, summary.source) if is_here else (summary.source,))
