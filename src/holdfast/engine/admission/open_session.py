"""Requests to open a session, and the creation of new ones."""

from pathlib import Path

import msgspec

from holdfast.model.event import SessionOpened
from holdfast.model.mode import DEFAULT_MODE, LOCAL_USER, Mode
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import ownership, sessions


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open: an existing one (`ref`), the current one of a channel (`channel`), or a new one."""

    ref: str | None = None
    channel: str | None = None
    source: str = "library"
    title: str | None = None
    model: str | None = None
    system: str | None = None
    workdir: Path | None = None
    terminal: str = ""
    """The terminal backend of a new session; empty for the configured one."""
    mode: Mode | None = None
    """The permission mode, also of a session that exists; None for its own, or for the configured one."""
    by: str = LOCAL_USER
    """Who changes the permission mode of a session that exists."""
    own: bool = False
    """Whether this worker owns the session while it has it open: if the worker dies, the session is ended."""

    def fact(self, default_model: str, default_mode: Mode = DEFAULT_MODE) -> SessionOpened:
        """The first event of a new session."""
        return SessionOpened(
            source=self.source,  # type: ignore[arg-type] # callers pass one of the sources
            channel=self.channel,
            model=self.model or default_model,
            title=None if self.title is None else sessions.clean_title(self.title),
            system=self.system,
            workdir=None if self.workdir is None else str(self.workdir),
            terminal=self.terminal,
            mode=self.mode or default_mode,
        )


class OpenedSession(msgspec.Struct, frozen=True):
    session: Session
    new: bool
    others: int = 0
    """How many other sessions the reference also matches, if it is a title."""


def create(
    tx: Transaction, session_id: str, fact: SessionOpened, owner: str | None, *, at: int
) -> tuple[Session, bool]:
    """Create a session together with its owner, so that a crash leaves no session without one."""
    make = sessions.create if fact.channel is None else sessions.create_for_channel
    session, new = make(tx, session_id, fact, at=at)
    if owner is not None and ownership.attach(tx, session.id, owner):
        session = msgspec.structs.replace(session, owner_worker=owner)
    return session, new
