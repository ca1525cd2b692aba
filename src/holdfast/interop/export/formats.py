"""The formats of an export: `jsonl.py` is complete and can be imported; the others are for people to read."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.interop.export.markdown_file import render_markdown
from holdfast.model.entry import Entry
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions

FORMATS = ("jsonl", "md", "html")


def render_session(session: Session, entries: Sequence[Entry], form: str, home: Path) -> str:
    """The session as Markdown or HTML. `home` has the images that are too large for the log."""
    if form == "md":
        return render_markdown(session, entries)
    from holdfast.interop.pages.document import render_file  # its libraries load slowly

    return render_file(session, entries, home)


def read_rendered(tx: Transaction, session_id: str, form: str, home: Path) -> str:
    """The stored session as Markdown or HTML, after its log was verified."""
    session = sessions.get(tx, session_id)
    return render_session(session, log.read_complete(tx, session), form, home)
