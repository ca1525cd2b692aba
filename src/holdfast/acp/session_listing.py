"""Lists sessions for editors: chats that have a working directory."""

from pathlib import Path

import msgspec

from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import session_list, sessions
from holdfast.store.repos.session_list import SessionFilters

PAGE = 50
MAX_READ = 500
"""Sessions that one request looks at; the next page continues behind them."""


class ListedSession(msgspec.Struct, frozen=True):
    session: Session
    workdir: str


def list_by_workdir(
    tx: Transaction, workdir: Path | None, cursor: str | None
) -> tuple[list[ListedSession], str | None]:
    """Sessions of that directory, or of all, newest activity first, and the cursor of the next page."""
    found: list[ListedSession] = []
    for _ in range(MAX_READ // PAGE):
        page = session_list.list_page(tx, SessionFilters(source="chat"), limit=PAGE, cursor=cursor)
        for session in page.sessions:
            opened = recorded_workdir(tx, session.id)
            if opened is not None and (workdir is None or Path(opened) == workdir):
                found.append(ListedSession(session, opened))
        cursor = page.next
        if cursor is None or len(found) >= PAGE:
            break
    return found, cursor


def recorded_workdir(tx: Transaction, session_id: str) -> str | None:
    """The directory in which the session was opened, if it is known."""
    opened = sessions.get_opened(tx, session_id)
    return None if opened is None else opened.workdir
