"""Sessions: create, find, rename, pin, end, reopen, trash and restore them."""

from collections.abc import Iterable
from typing import cast

import msgspec

from holdfast.model.entry import GENESIS, decode
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import (
    Ended,
    EndReason,
    Event,
    MessagePinned,
    MessageUnpinned,
    ModeChanged,
    Pinned,
    Reopened,
    Restored,
    SessionOpened,
    SystemChanged,
    Titled,
    Trashed,
    Unpinned,
)
from holdfast.model.framework.item import CHANNEL
from holdfast.model.ids import SESSION, SHORTEST_PREFIX
from holdfast.model.mode import Mode
from holdfast.model.session import Session, as_message, title_line
from holdfast.model.turn import closing_events, half_said
from holdfast.store import id_prefix
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, delegations, leases, log
from holdfast.store.repos.leases import Lease


class ResolvedRef(msgspec.Struct, frozen=True):
    """The session of a reference, how it was found, and how many other sessions match."""

    session: Session
    by: str
    others: int = 0


class TakenSession(msgspec.Struct, frozen=True):
    """A lease, with the session as it was when the lease was taken."""

    lease: Lease
    session: Session | None
    """None if this worker held the session before."""
    has_input: bool = False
    """Whether messages wait in its queue."""


def create(tx: Transaction, session_id: str, opened: SessionOpened, *, at: int) -> tuple[Session, bool]:
    """The session of this id, and whether it is new. Creating one that exists returns it unchanged."""
    if tx.one("sessions.create", id=session_id, hash=GENESIS, source=opened.source, at=at) is None:
        return get(tx, session_id), False
    return log.append_unheld(tx, session_id, [opened], at=at), True


def create_for_channel(tx: Transaction, session_id: str, opened: SessionOpened, *, at: int) -> tuple[Session, bool]:
    """The current session of the channel; without one, or with one in the trash, a new session becomes it."""
    assert opened.channel is not None, "a session for a channel names it"
    current = aliases.get_channel_session(tx, opened.channel)
    if current is not None and (session := get(tx, current)).summary.trashed_at is None:
        return session, False
    session, new = create(tx, session_id, opened, at=at)
    aliases.set_channel_session(tx, opened.channel, session_id, at=at)
    return session, new


def get(tx: Transaction, session_id: str) -> Session:
    """Raises NotFound."""
    row = tx.one("sessions.get", id=session_id)
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    return log.session_from_row(row)


def find(tx: Transaction, session_id: str) -> Session | None:
    """The session; None if it was deleted."""
    row = tx.one("sessions.get", id=session_id)
    return None if row is None else log.session_from_row(row)


def take(tx: Transaction, session_id: str, worker_id: str) -> TakenSession:
    """Take the lease of the session. Raises as `leases.take` does."""
    lease, row = leases.take_row(tx, session_id, worker_id)
    if row is None:
        return TakenSession(lease, None)
    return TakenSession(lease, log.session_from_row(row[:-1]), has_input=bool(row[-1]))


def resolve(tx: Transaction, ref: str, *, trashed: bool = False) -> ResolvedRef:
    """The session of a reference: an id, an alias, a framework's name for it, an exact title or the beginning of an id.

    If several sessions have the title, the one used last is returned, and `others` counts the rest. Sessions in the trash are
    found only by full id or alias, and only if `trashed` is set. Raises NotFound, or Ambiguous with the candidates.
    """
    if not is_storable(ref):
        raise NotFound(f"no session has the id, alias or title {ref!r}")
    row = tx.one("sessions.get", id=ref)
    alias = aliases.find(tx, ref) or aliases.get_channel_session(tx, f"{CHANNEL}:{ref}") if row is None else None
    if row is None and alias is None:
        return _resolve_loosely(tx, ref)
    session = log.session_from_row(row) if row is not None else get(tx, cast("str", alias))
    if session.summary.trashed_at is not None and not trashed:
        raise NotFound(f"session {session.id} is in the trash; 'holdfast sessions restore {session.id}' restores it")
    return ResolvedRef(session, "id" if row is not None else "alias")


def is_storable(ref: str) -> bool:
    """Whether it is text that a store can hold: a command line may contain other bytes."""
    return "\0" not in ref and ref.encode("utf-8", "replace").decode("utf-8") == ref


def _resolve_loosely(tx: Transaction, ref: str) -> ResolvedRef:
    titled = tx.one("sessions.by_title", title=title_line(ref))
    if titled is not None:
        return ResolvedRef(get(tx, cast("str", titled[0])), "title", cast("int", titled[1]) - 1)
    prefix = ref if ref.startswith(SESSION) else SESSION + ref
    if len(ref) < SHORTEST_PREFIX or not prefix.isascii():
        raise NotFound(
            f"no session has the id, alias or title {ref!r} (an id prefix needs at least {SHORTEST_PREFIX} characters)"
        )
    matching = id_prefix.list_by_prefix(tx, "sessions.by_prefix", prefix)
    if not matching:
        raise NotFound(f"no session has the id, alias or title {ref!r}, and no id begins with it")
    return ResolvedRef(get(tx, id_prefix.require_one(ref, matching, "sessions")), "prefix")


def rename(tx: Transaction, session_id: str, title: str, *, at: int) -> Session:
    """Give the session a title: one line, without control characters, not empty."""
    return log.annotate(tx, session_id, Titled(title=clean_title(title)), at=at)


def get_titles(tx: Transaction, ids: Iterable[str]) -> dict[str, str | None]:
    """The titles of the sessions. Raises NotFound if one of them does not exist."""
    return {session_id: get(tx, session_id).summary.title for session_id in ids}


def clean_title(title: str) -> str:
    """The title as it is stored. Raises Invalid if it has no visible character."""
    cleaned = title_line(title)
    if not cleaned:
        raise Invalid("a title needs at least one visible character")
    return cleaned


def pin(tx: Transaction, session_id: str, *, pinned: bool, at: int) -> Session:
    """Pin or unpin the session. A repeat adds nothing."""
    session = get(tx, session_id)
    if bool(session.summary.pinned) == pinned:
        return session
    return log.annotate(tx, session_id, Pinned() if pinned else Unpinned(), at=at)


def set_mode(tx: Transaction, session_id: str, mode: Mode, *, by: str, at: int) -> Session:
    """Change the permission mode, also while a worker holds the session. A repeat adds nothing."""
    session = get(tx, session_id)
    if session.summary.mode == mode:
        return session
    return log.annotate(tx, session_id, ModeChanged(mode=mode, previous=session.summary.mode, by=by), at=at)


def pin_message(tx: Transaction, session_id: str, seq: int, *, pinned: bool, at: int) -> Session:
    """Pin or unpin a message, also while a worker holds the session. Raises Invalid if the event is not a message."""
    session = get(tx, session_id)
    found = log.read(tx, session_id, first=seq, last=seq)
    if not found or as_message(found[0]) is None:
        what = f"event {seq} is {found[0].kind}" if found else f"there are events 1 to {session.seq}"
        raise Invalid(f"session {session_id} has no message {seq}: {what}; 'holdfast sessions show' gives the numbers")
    return log.annotate(tx, session_id, MessagePinned(seq=seq) if pinned else MessageUnpinned(seq=seq), at=at)


def get_opened(tx: Transaction, session_id: str) -> SessionOpened | None:
    """The event that opened the session; None if the log does not begin with that."""
    first = log.read(tx, session_id, first=1, last=1)
    event = first[0].event if first else None
    return event if isinstance(event, SessionOpened) else None


def get_system_text(tx: Transaction, session: Session) -> str | None:
    """The system text of the newest `system_changed` event, else of the opening; None means the built-in text."""
    row = tx.one("sessions.find_newest_system_text", session=session.id)
    seq = 1 if row is None else cast("int", row[0])
    event = log.read(tx, session.id, first=seq, last=seq)[0].event
    if isinstance(event, SystemChanged | SessionOpened):
        return event.system or None
    return None


def end(tx: Transaction, session_id: str, reason: EndReason, *, at: int, detail: str = "") -> Session:
    """End a session without a lease; the first reason stays. Raises Busy if a worker holds it."""
    session = get(tx, session_id)
    if session.summary.ended_at is not None:
        return session
    loose = _left_open(tx, session) if session.summary.open_turn is not None else []
    return log.append_unheld(tx, session_id, [*loose, Ended(reason=reason, detail=detail)], at=at)


def _left_open(tx: Transaction, session: Session) -> list[Event]:
    """The events that close an open turn, with the text of an unfinished reply."""
    draft = log.get_draft(tx, session.id)
    log.delete_draft(tx, session.id)
    partial = (
        [half_said(draft.turn_id, draft.body, draft.called)]
        if draft is not None and draft.turn_id == session.summary.open_turn and draft.body
        else []
    )
    return [*partial, *closing_events(log.read(tx, session.id))]


def reopen(tx: Transaction, session_id: str, *, at: int, reason: str = "") -> Session:
    """Reopen an ended session, with all its messages. Raises Busy if a worker holds it."""
    session = get(tx, session_id)
    if session.summary.ended_at is None and session.summary.quarantined is None:
        return session
    return log.append_unheld(tx, session_id, [Reopened(reason=reason, by_person=True)], at=at)


def trash(tx: Transaction, session_id: str, *, at: int, reason: str = "") -> Session:
    """Move the session and its children to the trash. Raises Busy while a worker holds it, or a child that has ended.

    Running children are asked to stop, and follow when they end.
    """
    session = get(tx, session_id)
    if session.summary.trashed_at is not None:
        return session
    trashed = log.append_unheld(tx, session_id, [Trashed(reason=reason)], at=at)
    for record in delegations.list_children(tx, session_id):
        if record.ended_at is not None and find(tx, record.child_id) is not None:
            trash(tx, record.child_id, at=at, reason=trashed_with(session_id))
    return trashed


def trashed_with(parent_id: str) -> str:
    """The reason of a child that went to the trash with its parent, and is restored with it."""
    return f"with {parent_id}, which delegated to it"


def restore(tx: Transaction, session_id: str, *, at: int) -> Session:
    """Restore the session from the trash, with the children that went there with it."""
    session = get(tx, session_id)
    if session.summary.trashed_at is None:
        return session
    restored = log.annotate(tx, session_id, Restored(), at=at)
    for record in delegations.list_children(tx, session_id):
        if _was_trashed_with(tx, record.child_id, session_id):
            restore(tx, record.child_id, at=at)
    return restored


def _was_trashed_with(tx: Transaction, child_id: str, parent_id: str) -> bool:
    child = find(tx, child_id)
    if child is None or child.summary.trashed_at is None:
        return False
    row = tx.one("delegations.find_trash_reason", session=child_id)
    event = None if row is None else decode("trashed", cast("str", row[0]))
    return isinstance(event, Trashed) and event.reason == trashed_with(parent_id)
