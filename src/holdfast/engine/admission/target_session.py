"""Finds or creates the session of a client's request, and says how many of the messages it already has."""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine.admission import failed_request, history_match, revised_history
from holdfast.engine.admission.client_request import ClientRequest, ContinueFrom, LogNotVerified
from holdfast.engine.admission.history_match import ClientHistory, HistoryEdited, HistoryExtended
from holdfast.engine.admission.prepared_request import PreparedRequest
from holdfast.engine.admission.revised_history import Revision
from holdfast.engine.admission.rewind import rewind
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import Rewound, SessionOpened, TurnStarted
from holdfast.model.ids import SESSION
from holdfast.model.message import typed_text
from holdfast.model.session import Session, preview, standing
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, client_history, input_queue, log, session_forks, sessions, turn_lookup

UNKNOWN_SESSION = ""
"""What an auxiliary request belongs to if its session does not exist yet, or is not named."""


class TargetSession(msgspec.Struct, frozen=True):
    """The session of the request, and how many of the messages it already has."""

    session: Session
    known: int = 0
    new: bool = False
    forked_from: str | None = None
    tail: Sequence[Entry] = ()
    """The end of the session's log, if it is known."""


def find_target(
    tx: Transaction, arrival: ClientRequest, at: int, *, is_verified: Callable[[str], bool]
) -> TargetSession:
    """Find or create the session of the request. Raises LogNotVerified, NotFound, Conflict and NotPrepared."""
    addressed = find_named(tx, arrival) if arrival.after is None else sessions.get(tx, arrival.after.session_id)
    if addressed is not None and not is_verified(addressed.id):
        raise LogNotVerified(addressed.id)
    target = _target(tx, arrival, addressed, arrival.prepared or arrival.hashed(), at)
    if not target.new and target.session.id != (addressed and addressed.id) and not is_verified(target.session.id):
        raise LogNotVerified(target.session.id)
    return target


def _target(
    tx: Transaction, arrival: ClientRequest, session: Session | None, prepared: PreparedRequest, at: int
) -> TargetSession:
    """Find or create it; `session` is the one that the request addresses."""
    if arrival.after is not None:
        assert session is not None, "a request that continues from a turn names its session"
        return _following(tx, arrival, session, arrival.after, prepared, at)
    if arrival.auxiliary == "yes":
        return _begin(tx, arrival, at, side_of=UNKNOWN_SESSION if session is None else session.id)
    found: HistoryExtended | HistoryEdited | None
    if session is not None:
        target, found = _of_named(tx, arrival, session, prepared, at)
    else:
        target, found = None, None
        if arrival.channel is None:
            target, found = _matched(tx, arrival, prepared, at)
    if target is not None:
        return target
    match found:
        case HistoryExtended():
            return TargetSession(found.session, found.known)
        case HistoryEdited():
            return _fork(tx, arrival, found, prepared, at)
        case None:
            return _begin(tx, arrival, at)


def _of_named(
    tx: Transaction, arrival: ClientRequest, session: Session, prepared: PreparedRequest, at: int
) -> tuple[TargetSession | None, HistoryExtended | HistoryEdited]:
    """The target of a request that names this session; without one, where its history continues another branch."""
    answered = prepared.history.answered
    may_be_aside = arrival.auxiliary == "likely" and not answered and arrival.system is not None
    is_aside = may_be_aside and changes_system(tx, session, arrival.system or "")
    end = client_history.catch_up(tx, session)
    if not is_aside and (rest := failed_request.take_back(tx, session, end, prepared, at=at)) is not session:
        session, end = rest, client_history.catch_up(tx, rest)
    found = history_match.of_family(tx, session, end, prepared.history)
    if isinstance(found, HistoryExtended):
        return (TargetSession(session, found.known, tail=end.entries) if found.session is session else None), found
    if is_aside:
        return _begin(tx, arrival, at, side_of=session.id), found
    target = None
    if answered or _begins_alike(session, prepared.history):
        target = _revised(tx, arrival, session, found, prepared, at)
    if target is None and not answered:
        target = TargetSession(session, tail=end.entries)
    return target, found


def _begins_alike(session: Session, history: ClientHistory) -> bool:
    """Whether the messages may be those with which the session began, judged without reading its log."""
    return bool(history.given) and preview(typed_text(history.given[0].parts)) == session.summary.preview


def _matched(
    tx: Transaction, arrival: ClientRequest, prepared: PreparedRequest, at: int
) -> tuple[TargetSession | None, HistoryExtended | HistoryEdited | None]:
    """Match a request that names no session by its history."""
    found = history_match.of_caller(tx, arrival.caller, prepared.history)
    if isinstance(found, HistoryEdited):
        session = sessions.get(tx, found.position.session_id)
        end = client_history.catch_up(tx, session)
        if failed_request.take_back(tx, session, end, prepared, at=at) is not session:
            found = history_match.of_caller(tx, arrival.caller, prepared.history)
    if isinstance(found, HistoryExtended):
        return None, found
    return _revised(tx, arrival, None, found, prepared, at), found


def find_revision(
    tx: Transaction,
    arrival: ClientRequest,
    session: Session | None,
    edited: HistoryEdited | None,
    history: ClientHistory,
) -> Revision | None:
    """How the messages continue a session whose history they revise; `session` is the one that the request names."""
    client = arrival.terms.client
    if session is None:
        return revised_history.of_caller(tx, arrival.caller, edited, history, client)
    assert edited is not None, "a named session has a beginning"
    return revised_history.of_named(tx, session, edited, history, client)


def _revised(
    tx: Transaction,
    arrival: ClientRequest,
    named: Session | None,
    edited: HistoryEdited | None,
    prepared: PreparedRequest,
    at: int,
) -> TargetSession | None:
    """Continue the session whose history the messages revise. What a read has found is used if it still holds."""
    revision = prepared.revision
    if revision is None and prepared.is_revision_searched:
        return None
    session = named or (None if revision is None else sessions.get(tx, revision.session_id))
    if revision is None or session is None or not revised_history.still_holds(tx, revision, session):
        revision = find_revision(tx, arrival, named, edited, prepared.history)
    if revision is None:
        return None
    session = sessions.get(tx, revision.session_id)
    if revision.back is None:
        return TargetSession(session, revision.known)
    if session.summary.updated_at > at:
        return None  # the client sent this before it could see what it would take back
    return TargetSession(rewind(tx, revision.back, at=at), revision.known)


def _following(
    tx: Transaction, arrival: ClientRequest, session: Session, after: ContinueFrom, prepared: PreparedRequest, at: int
) -> TargetSession:
    """The session of the turn if that is its newest, else a fork after the turn. Raises NotFound, or Conflict while it is open."""
    end = client_history.catch_up(tx, session)
    session = failed_request.take_back(tx, session, end, prepared, at=at)
    position = turn_lookup.find(tx, session.id, after.turn_id)
    if session.summary.trashed_at is not None or position is None:
        raise NotFound(f"there is no turn {after.turn_id} to continue from")
    if is_newest(tx, session, position):
        return TargetSession(session)
    if not position.last:
        raise Conflict(f"turn {after.turn_id} is not over, and another request has already continued from it")
    edited = HistoryEdited(client_history.HistoryPosition(session.id, position.last, "", arrival.caller, session.id), 0)
    return _fork(tx, arrival, edited, prepared, at)


def is_newest(tx: Transaction, session: Session, position: turn_lookup.TurnPosition) -> bool:
    """Whether the turn is the newest, apart from turns that were taken back."""
    waiting = [item.turn_id for item in input_queue.list_waiting(tx, session.id) if item.said is not None]
    if not position.first:
        return position.dropped is None and waiting[-1:] == [position.turn_id]
    if waiting or not position.last:
        return not waiting
    since = log.read(tx, session.id, first=position.last + 1)
    if any(isinstance(entry.event, Rewound) and entry.event.to_seq < position.last for entry in since):
        return False
    return not any(isinstance(entry.event, TurnStarted) for entry in standing(since))


def find_named(tx: Transaction, arrival: ClientRequest) -> Session | None:
    """The session that the request names. Raises NotFound for an unknown session id."""
    if arrival.ref is None and arrival.channel is None:
        return None
    found, current = aliases.find_alias_and_channel(tx, arrival.ref, arrival.channel)
    if found is None and arrival.ref is not None and arrival.ref.startswith(SESSION):
        found = arrival.ref
    if found is not None:
        session = sessions.get(tx, found)
        if session.summary.trashed_at is not None:
            raise NotFound(f"session {session.id} is in the trash")
        return session
    if current is None or (session := sessions.get(tx, current)).summary.trashed_at is not None:
        return None
    return session


def _begin(tx: Transaction, arrival: ClientRequest, at: int, *, side_of: str | None = None) -> TargetSession:
    opened = SessionOpened(
        source="api",
        channel=None if side_of is not None else arrival.channel,
        model=arrival.model or arrival.default_model,
        system=arrival.system,
        workdir=arrival.workdir,
        side_of=side_of,
        mode=arrival.permission_mode,
    )
    session, is_new = sessions.create(tx, arrival.new_id, opened, at=at)
    if opened.channel is not None:
        aliases.set_channel_session(tx, opened.channel, session.id, at=at)
    client_history.begin(tx, session, "" if side_of is not None else arrival.caller)
    return TargetSession(session, new=True, tail=[Entry(session.seq, at, opened, session.hash)] if is_new else ())


def _fork(
    tx: Transaction, arrival: ClientRequest, edited: HistoryEdited, prepared: PreparedRequest, at: int
) -> TargetSession:
    parent, upto = edited.position.session_id, edited.position.seq
    shared = prepared.shared_with(tx, edited)
    session = session_forks.fork(tx, shared, arrival.new_id, at=at, source="api", channel=arrival.channel)
    client_history.copy(tx, parent, session.id, upto=upto)
    if arrival.channel is not None:
        aliases.set_channel_session(tx, arrival.channel, session.id, at=at)
    return TargetSession(session, edited.known, new=True, forked_from=parent)


def changes_system(tx: Transaction, session: Session, system: str) -> bool:
    """Whether this system text differs from the session's."""
    return system.strip() != (sessions.get_system_text(tx, session) or "").strip()
