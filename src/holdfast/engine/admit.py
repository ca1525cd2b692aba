"""The door: input becomes durable here, before anything else happens to it."""

import hashlib

import msgspec

from holdfast.engine.beginning import begin
from holdfast.engine.hand import reopening
from holdfast.engine.rewind import Rewind, rewind
from holdfast.model.entry import Entry, encode
from holdfast.model.errors import Busy, InQuarantine, NotFound
from holdfast.model.event import Event, Terms, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session
from holdfast.store import inputs, keys, leases, log, sessions
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input, Mode
from holdfast.store.leases import Lease


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says to a session. A `key` makes a repeat of the same words by the same caller the same turn."""

    turn_id: str
    parts: tuple[Content, ...]
    mode: Mode | None = "queue"
    """What to do while another turn runs; None to refuse."""
    name: str = ""
    caller: str = ""
    key: str = ""
    request: str = ""
    """A digest of what was asked, to know a repeat by; without it, that of the words."""
    before: tuple[Event, ...] = ()
    """What goes into the log ahead of the words."""
    terms: Terms = Terms()
    instead: Rewind | None = None
    """What is taken back in the same step, so that these words take its place."""


class Admission(msgspec.Struct, frozen=True):
    """What became of the words. With a lease this worker has the session in hand and must go on with it."""

    session: Session
    turn_id: str
    lease: Lease | None = None
    began: bool = False
    """Whether the turn has begun; otherwise it waits, or this was a repeat."""
    repeated: bool = False
    entries: tuple[Entry, ...] = ()
    """What was added to the log."""


def admit(tx: Transaction, session_id: str, words: Words, *, worker_id: str, at: int) -> Admission:
    """Make the words durable, in one transaction: as the start of a turn if the session is free, else in its queue.

    A repeat of a keyed request changes nothing and leads to the turn of the first. An ended session is
    reopened. Raises InQuarantine, NotFound, KeyReused, Busy if the caller would rather not wait, and as `rewind`.
    """
    session = sessions.get(tx, session_id)
    said = UserSaid(turn_id=words.turn_id, parts=words.parts, name=words.name)
    if words.key:
        request = words.request or _digest(said)
        bound = keys.claim(tx, session_id, words.caller, words.key, request=request, turn_id=words.turn_id, at=at)
        if bound != words.turn_id:
            return Admission(session, bound, repeated=True)
    refuse_closed_to_words(session)
    if words.instead is not None:
        session = rewind(tx, words.instead, at=at)
    lease = _take(tx, session, worker_id, wait=words.mode is not None)
    queued = any(item.said is not None for item in inputs.waiting(tx, session_id))
    # A session that this worker holds without a turn is being compacted.
    ready = session.lease_worker is None and session.summary.open_turn is None and not queued
    input_ = Input(words.turn_id, "queue", said, words.before, words.terms)
    if lease is not None and ready:
        events = [*reopening(session), *begin(tx, session, input_, worker_id)]
        after = log.append(tx, lease, events, at=at)
        entries = tuple(Entry(session.seq + place, at, event) for place, event in enumerate(events, 1))
        return Admission(after, words.turn_id, lease, began=True, entries=entries)
    if words.mode is None:
        what = session.summary.open_turn or "its context is being compacted"
        raise Busy(f"session {session_id} has a turn under way ({what})")
    inputs.put(tx, session_id, msgspec.structs.replace(input_, mode=words.mode), at=at)
    return Admission(session, words.turn_id, lease)


def refuse_closed_to_words(session: Session) -> None:
    """Raise NotFound for a session in the trash, InQuarantine for one that recovery gave up."""
    session_id = session.id
    if session.summary.trashed_at is not None:
        raise NotFound(f"session {session_id} is in the trash; 'holdfast sessions restore {session_id}' brings it back")
    if session.summary.quarantined is not None:
        raise InQuarantine(
            f"session {session_id} is in quarantine: {session.summary.quarantined}. "
            f"Nothing is lost; 'holdfast sessions reopen {session_id}' takes it up again"
        )


def _take(tx: Transaction, session: Session, worker_id: str, *, wait: bool) -> Lease | None:
    try:
        return leases.take(tx, session.id, worker_id)
    except Busy:
        if wait:
            return None
        raise


def _digest(said: UserSaid) -> str:
    """What was asked, whatever turn id this attempt was given."""
    return hashlib.sha256(encode(msgspec.structs.replace(said, turn_id="")).encode()).hexdigest()
