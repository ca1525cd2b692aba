"""Admits input: it becomes durable before anything else happens to it."""

import hashlib

import msgspec

from holdfast.engine.admission.rewind import Rewind, rewind
from holdfast.engine.admission.turn_start import begin, reopening
from holdfast.model.entry import Entry, encode
from holdfast.model.errors import Busy, NotFound
from holdfast.model.event import Event, RequestOptions, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import idempotency, input_queue, log, sessions, turn_lookup
from holdfast.store.repos.input_queue import Input, InputMode
from holdfast.store.repos.leases import Lease
from holdfast.store.repos.sessions import TakenSession
from holdfast.store.repos.turn_lookup import LogEnd

API = "api:"
"""The prefix of callers of the API; alone, the client named no user."""


class UserInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input for a session. With a `key`, the same input from the same caller is the same turn."""

    turn_id: str
    parts: tuple[Content, ...]
    mode: InputMode | None = "queue"
    """What to do while another turn runs; None to refuse."""
    name: str = ""
    sender: str = ""
    """The id of the sender, if not the local user."""
    shared: bool = False
    """Whether other people read the conversation."""
    caller: str = ""
    key: str = ""
    request: str = ""
    """A digest of the request, to recognise a repeat; by default, that of the input."""
    before: tuple[Event, ...] = ()
    """Events that are logged before the input."""
    terms: RequestOptions = RequestOptions()
    instead: Rewind | None = None
    """Turns that are taken back in the same transaction, so that the input replaces them."""


class Admission(msgspec.Struct, frozen=True):
    """The result of an admission. With a lease, this worker holds the session and must run the turn."""

    session: Session
    turn_id: str
    lease: Lease | None = None
    began: bool = False
    """Whether the turn has begun; otherwise it is queued, or this was a repeat."""
    repeated: bool = False
    entries: tuple[Entry, ...] = ()
    """The entries that were added to the log."""


def admit(tx: Transaction, session_id: str, user_input: UserInput, *, worker_id: str, at: int) -> Admission:
    """Make the input durable in one transaction: as the start of a turn if the session is free, else in its queue.

    A repeat of a keyed request changes nothing and returns the turn of the first one. An ended session is reopened.
    Raises NotFound, KeyReused, Busy if the caller does not want to wait, and as `rewind`.
    """
    return admit_to(tx, sessions.get(tx, session_id), user_input, worker_id=worker_id, at=at)


def admit_to(
    tx: Transaction, session: Session, user_input: UserInput, *, worker_id: str, at: int, end: LogEnd | None = None
) -> Admission:
    """As `admit`, for a session that this transaction has read, and the end of its log if it has read that too."""
    session_id = session.id
    said = UserSaid(turn_id=user_input.turn_id, parts=user_input.parts, name=user_input.name)
    if user_input.key:
        request = user_input.request or _digest(said)
        bound = idempotency.claim(
            tx, session_id, user_input.caller, user_input.key, request=request, turn_id=user_input.turn_id, at=at
        )
        if bound != user_input.turn_id:
            return Admission(session, bound, repeated=True)
    said = msgspec.structs.replace(said, sender=_sender(user_input), shared=user_input.shared)
    require_not_trashed(session)
    if user_input.instead is not None:
        session = rewind(tx, user_input.instead, at=at)
    taken = _take(tx, session, worker_id, wait=user_input.mode is not None)
    input_ = Input(user_input.turn_id, "queue", said, user_input.before, user_input.terms)
    # A session that this worker held before, without a turn, is being compacted.
    if taken is not None and taken.session is not None and not taken.has_input and not taken.session.summary.open_turn:
        free = taken.session
        awaited = (end or turn_lookup.read_log_end(tx, free)).awaited
        events = [*reopening(free), *begin(tx, free, input_, worker_id, awaited)]
        after = log.extend(tx, free, events, at=at)
        entries = tuple(Entry(free.seq + offset, at, event) for offset, event in enumerate(events, 1))
        return Admission(after, user_input.turn_id, taken.lease, began=True, entries=entries)
    if user_input.mode is None:
        turn_id = session.summary.open_turn
        raise Busy(f"session {session_id} is {'being compacted' if turn_id is None else f'running turn {turn_id}'}")
    input_queue.put(tx, session_id, msgspec.structs.replace(input_, mode=user_input.mode), at=at)
    return Admission(session, user_input.turn_id, None if taken is None else taken.lease)


def require_not_trashed(session: Session) -> None:
    """Raise NotFound for a session in the trash."""
    session_id = session.id
    if session.summary.trashed_at is not None:
        raise NotFound(f"session {session_id} is in the trash; 'holdfast sessions restore {session_id}' restores it")


def _take(tx: Transaction, session: Session, worker_id: str, *, wait: bool) -> TakenSession | None:
    try:
        return sessions.take(tx, session.id, worker_id)
    except Busy:
        if wait:
            return None
        raise


def _sender(user_input: UserInput) -> str:
    """The sender to record. A caller of the API is one only if it named its user; the session that it named is not part of it."""
    person = user_input.caller.partition(" ")[0]
    named = person.startswith(API) and person != API
    return user_input.sender or (person if named else "")


def caller_id(who: str) -> str:
    """The id of a caller of the API that names its user so: requests of one user are matched to a session by history alone."""
    return f"{API}{hashlib.sha256(who.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}" if who else API


def _digest(said: UserSaid) -> str:
    """A digest of the input that does not depend on the turn id of this attempt."""
    return hashlib.sha256(encode(msgspec.structs.replace(said, turn_id="")).encode()).hexdigest()
