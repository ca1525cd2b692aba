"""Which session somebody wants to open, and how one that does not exist yet is made."""

from pathlib import Path

import msgspec

from holdfast.model.event import SessionOpened
from holdfast.model.session import Session
from holdfast.store import owners, sessions
from holdfast.store.database import Transaction


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open: an existing one (`ref`), the current one of a channel (`channel`), or a new one."""

    ref: str | None = None
    channel: str | None = None
    source: str = "library"
    title: str | None = None
    model: str | None = None
    system: str | None = None
    workdir: Path | None = None
    own: bool = False
    """Whether this worker keeps the session open until it leaves it: when the worker dies, the session is ended."""

    def fact(self, default_model: str) -> SessionOpened:
        """The first event of a session that is made."""
        return SessionOpened(
            source=self.source,  # type: ignore[arg-type] # the faces give one of the sources
            channel=self.channel,
            model=self.model or default_model,
            title=None if self.title is None else sessions.clean_title(self.title),
            system=self.system,
            workdir=None if self.workdir is None else str(self.workdir),
        )


class Opened(msgspec.Struct, frozen=True):
    session: Session
    new: bool
    others: int = 0
    """How many other sessions the reference, if it was a title, would have meant as well."""


def create(
    tx: Transaction, session_id: str, fact: SessionOpened, owner: str | None, *, at: int
) -> tuple[Session, bool]:
    """A session that has its owner from the start, so that a crash leaves none that is nobody's."""
    make = sessions.create if fact.channel is None else sessions.create_for_channel
    session, new = make(tx, session_id, fact, at=at)
    if owner is not None and owners.attach(tx, session.id, owner):
        session = msgspec.structs.replace(session, owner_worker=owner)
    return session, new
