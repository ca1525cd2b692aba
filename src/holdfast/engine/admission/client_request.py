"""Admits a client's request in one transaction: which session it belongs to, what is new in it, and its turn.

The rules, in this order. A key that was used before returns its turn. An auxiliary request, such as for a title, is
answered in a session of its own. If the messages extend a branch of the session, those after the end of the log are
input. A client that revises its own history continues its session (`revised_history`). Messages without a reply of the
model are all input. Anything else is an edited history and becomes a fork. A request that names no session is matched by
its history or creates a session. A request that continues from a turn is all input; if another request has continued
from that turn before, it gets a fork. A repeat of a failed request replaces it.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal

import msgspec

from holdfast.engine.admission import failed_request, history_match, revised_history
from holdfast.engine.admission.admit import Admission, UserInput, admit_to
from holdfast.engine.admission.history_match import ClientHistory, ClientMessage, HistoryEdited, HistoryExtended
from holdfast.engine.admission.played_messages import as_ended_turns, as_result, refuse_strange_results
from holdfast.engine.admission.prepared_request import PreparedRequest
from holdfast.engine.admission.revised_history import Revision
from holdfast.engine.admission.rewind import rewind
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, Invalid, KeyReused, NotFound
from holdfast.model.event import (
    Event,
    Imported,
    RequestOptions,
    Rewound,
    SessionOpened,
    TurnStarted,
    UserSaid,
)
from holdfast.model.ids import SESSION
from holdfast.model.message import ToolCall, typed_text
from holdfast.model.mode import DEFAULT_MODE
from holdfast.model.mode import Mode as PermissionMode
from holdfast.model.session import Session, preview, standing
from holdfast.store.database import Transaction
from holdfast.store.repos import (
    aliases,
    client_history,
    idempotency,
    input_queue,
    log,
    recent_requests,
    session_forks,
    sessions,
    turn_lookup,
)
from holdfast.store.repos.input_queue import Mode
from holdfast.store.repos.recent_requests import RecentRequest

FORMAT = "messages of a request"
SEPARATOR = "\n\n"
"""Separates two system texts."""
UNKNOWN_SESSION = ""
"""What an auxiliary request belongs to if its session does not exist yet, or is not named."""
Auxiliary = Literal["no", "likely", "yes"]
"""`likely`: it is one if it has another system text than the session that it names."""


class ContinueFrom(msgspec.Struct, frozen=True):
    """A turn to continue from."""

    session_id: str
    turn_id: str


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a client. The ids are made beforehand; `new_id` is used if a session is created."""

    turn_id: str
    new_id: str
    messages: tuple[ClientMessage, ...]
    caller: str
    """The caller, for requests that are matched to a session by their history."""
    ref: str | None = None
    """A session id or an alias."""
    channel: str | None = None
    """The caller's own name for a session."""
    system: str | None = None
    model: str | None = None
    """None for the session's own."""
    default_model: str
    permission_mode: PermissionMode = DEFAULT_MODE
    """The permission mode of a new session."""
    terms: RequestOptions = RequestOptions()
    auxiliary: Auxiliary = "no"
    """Whether the client asks for its own use, such as for a title, and not as part of the conversation."""
    mode: Mode | None = "queue"
    key: str = ""
    request: str = ""
    """A digest of the body."""
    retried: bool = False
    """Whether the client says that it has sent this request before."""
    workdir: str | None = None
    after: ContinueFrom | None = None
    history: ClientHistory | None = None
    """The messages, hashed, if the caller has done that."""
    prepared: PreparedRequest | None = None
    """What a read has determined; without it, the write determines it."""

    def hashed(self) -> PreparedRequest:
        """The messages, hashed. The duration grows with their number."""
        return PreparedRequest.of(self.messages) if self.history is None else PreparedRequest(self.history)

    @property
    def owner(self) -> str:
        """The caller and the session that the request names: idempotency keys are bound to that."""
        named = self.after.session_id if self.after is not None else self.ref or self.channel or ""
        return f"{self.caller} {named}"


class AdmittedRequest(msgspec.Struct, frozen=True):
    """The result of an admitted request."""

    admission: Admission
    model: str = ""
    new: bool = False
    """Whether the request created the session."""
    forked_from: str | None = None
    first: int = 1
    """The first event of the turn, if it was admitted before."""


class PossibleRetry(Exception):
    """An equal request was admitted a short time ago. The caller, inside the engine, decides whether this one repeats it."""

    def __init__(self, recent: RecentRequest) -> None:
        super().__init__(recent.turn_id)
        self.recent = recent


class LogNotVerified(Exception):
    """The log of this session must be verified first. The caller, inside the engine, does that and tries again.

    Verifying reads the whole log, which the first turn in this worker has to do anyway. It is done before input is admitted,
    so that nothing is added to a damaged log; the result is cached.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id


class _Target(msgspec.Struct, frozen=True):
    """The session of the request, and how many of the messages it already has."""

    session: Session
    known: int = 0
    new: bool = False
    forked_from: str | None = None
    tail: Sequence[Entry] = ()
    """The end of the session's log, if it is known."""


def admit_request(
    tx: Transaction,
    arrival: ClientRequest,
    *,
    worker_id: str,
    at: int,
    is_verified: Callable[[str], bool],
    is_answered: Callable[[str], bool],
) -> AdmittedRequest:
    """Admit the request. Raises NotFound, KeyReused, Busy, Invalid, LogNotVerified, or PossibleRetry.

    `is_answered` tells of a turn that its client has the answer: an equal request is then a new one.
    """
    owner = arrival.owner
    if arrival.request and (arrival.retried or not arrival.key):
        recent = recent_requests.find_newest(tx, owner, arrival.request, at=at)
        if recent is not None and not is_answered(recent.turn_id):
            raise PossibleRetry(recent)
    if arrival.key and (bound := idempotency.find_by_key(tx, owner, arrival.key)) is not None:
        if bound.request != arrival.request:
            raise KeyReused(f"the idempotency key {arrival.key!r} was used for another request")
        session = sessions.get(tx, bound.session_id)
        return AdmittedRequest(Admission(session, bound.turn_id, repeated=True), _model(arrival, session))
    addressed = _addressed(tx, arrival)
    if addressed is not None and not is_verified(addressed.id):
        raise LogNotVerified(addressed.id)
    target = _target(tx, arrival, addressed, arrival.prepared or arrival.hashed(), at)
    if not target.new and target.session.id != (addressed and addressed.id) and not is_verified(target.session.id):
        raise LogNotVerified(target.session.id)
    session, rest = target.session, arrival.messages[target.known :]
    end = turn_lookup.read_log_end(tx, session, target.tail)
    before, last = _split(rest, arrival.turn_id, end.awaited)
    terms = _terms(tx, arrival, session)
    needs_own_turn = before or _changes_system(tx, session, terms.system)
    user_input = UserInput(
        turn_id=arrival.turn_id,
        parts=last.parts if last is not None else (),
        name=last.name if last is not None else "",
        mode="queue" if arrival.mode == "steer" and needs_own_turn else arrival.mode,
        caller=owner,
        key=arrival.key,
        request=arrival.request,
        before=tuple(before),
        terms=terms,
    )
    admission = admit_to(tx, session, user_input, worker_id=worker_id, at=at, end=end)
    if target.new and admission.began:  # with the first event, so that nothing has to be read of a new session
        admission = msgspec.structs.replace(admission, entries=(*target.tail, *admission.entries))
    if arrival.request:
        recent = RecentRequest(session.id, arrival.turn_id, worker_id)
        recent_requests.add(tx, owner, arrival.request, recent, at=at)
    return AdmittedRequest(admission, user_input.terms.model, target.new, target.forked_from)


def _addressed(tx: Transaction, arrival: ClientRequest) -> Session | None:
    """The session that the request addresses, if any."""
    return named(tx, arrival) if arrival.after is None else sessions.get(tx, arrival.after.session_id)


def _target(
    tx: Transaction, arrival: ClientRequest, session: Session | None, prepared: PreparedRequest, at: int
) -> _Target:
    """Find or create the session of the request; `session` is the one that it addresses."""
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
            return _Target(found.session, found.known)
        case HistoryEdited():
            return _fork(tx, arrival, found, prepared, at)
        case None:
            return _begin(tx, arrival, at)


def _of_named(
    tx: Transaction, arrival: ClientRequest, session: Session, prepared: PreparedRequest, at: int
) -> tuple[_Target | None, HistoryExtended | HistoryEdited]:
    """The target of a request that names this session; without one, where its history continues another branch."""
    answered = prepared.history.answered
    is_aside = arrival.auxiliary == "likely" and not answered and _changes_system(tx, session, arrival.system)
    end = client_history.catch_up(tx, session)
    if not is_aside and (rest := failed_request.take_back(tx, session, end, prepared, at=at)) is not session:
        session, end = rest, client_history.catch_up(tx, rest)
    found = history_match.of_family(tx, session, end, prepared.history)
    if isinstance(found, HistoryExtended):
        return (_Target(session, found.known, tail=end.entries) if found.session is session else None), found
    if is_aside:
        return _begin(tx, arrival, at, side_of=session.id), found
    target = None
    if answered or _begins_alike(session, prepared.history):
        target = _revised(tx, arrival, session, found, prepared, at)
    if target is None and not answered:
        target = _Target(session, tail=end.entries)
    return target, found


def _begins_alike(session: Session, history: ClientHistory) -> bool:
    """Whether the messages may be those with which the session began, judged without reading its log."""
    return bool(history.given) and preview(typed_text(history.given[0].parts)) == session.summary.preview


def _matched(
    tx: Transaction, arrival: ClientRequest, prepared: PreparedRequest, at: int
) -> tuple[_Target | None, HistoryExtended | HistoryEdited | None]:
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
) -> _Target | None:
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
        return _Target(session, revision.known)
    if session.summary.updated_at > at:
        return None  # the client sent this before it could see what it would take back
    return _Target(rewind(tx, revision.back, at=at), revision.known)


def _following(
    tx: Transaction, arrival: ClientRequest, session: Session, after: ContinueFrom, prepared: PreparedRequest, at: int
) -> _Target:
    """The session of the turn if that is its newest, else a fork after the turn. Raises NotFound, or Conflict while it is open."""
    end = client_history.catch_up(tx, session)
    session = failed_request.take_back(tx, session, end, prepared, at=at)
    position = turn_lookup.find(tx, session.id, after.turn_id)
    if session.summary.trashed_at is not None or position is None:
        raise NotFound(f"there is no turn {after.turn_id} to continue from")
    if is_newest(tx, session, position):
        return _Target(session)
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


def named(tx: Transaction, arrival: ClientRequest) -> Session | None:
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


def _begin(tx: Transaction, arrival: ClientRequest, at: int, *, side_of: str | None = None) -> _Target:
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
    return _Target(session, new=True, tail=[Entry(session.seq, at, opened, session.hash)] if is_new else ())


def _fork(
    tx: Transaction, arrival: ClientRequest, edited: HistoryEdited, prepared: PreparedRequest, at: int
) -> _Target:
    parent, upto = edited.position.session_id, edited.position.seq
    shared = prepared.shared_with(tx, edited)
    session = session_forks.fork(tx, shared, arrival.new_id, at=at, source="api", channel=arrival.channel)
    client_history.copy(tx, parent, session.id, upto=upto)
    if arrival.channel is not None:
        aliases.set_channel_session(tx, arrival.channel, session.id, at=at)
    return _Target(session, edited.known, new=True, forked_from=parent)


def _changes_system(tx: Transaction, session: Session, system: str | None) -> bool:
    """Whether this system text differs from the session's."""
    return system is not None and system.strip() != (sessions.get_system_text(tx, session) or "").strip()


def _terms(tx: Transaction, arrival: ClientRequest, session: Session) -> RequestOptions:
    """The options of the turn, with its system text; None to keep the session's."""
    system = _system(tx, arrival, session)
    return msgspec.structs.replace(arrival.terms, model=_model(arrival, session), system=system)


def _system(tx: Transaction, arrival: ClientRequest, session: Session) -> str | None:
    """The system text of the request.

    A request that continues from a turn adds its text to that of the turn. One that names no session is complete:
    without a system text there is none. One that names a session keeps the session's.
    """
    if arrival.after is not None:
        return _joined(sessions.get_system_text(tx, session) or "", arrival.system)
    is_named = arrival.ref is not None or arrival.channel is not None
    return arrival.system if is_named else arrival.system or ""


def _joined(current: str, added: str | None) -> str | None:
    """The text with one more paragraph, unless it contains that already."""
    if added is None or not added.strip():
        return None
    known = f"{SEPARATOR}{current.strip()}{SEPARATOR}"
    if f"{SEPARATOR}{added.strip()}{SEPARATOR}" in known:
        return None
    return f"{current}{SEPARATOR}{added}" if current.strip() else added


def _model(arrival: ClientRequest, session: Session) -> str:
    return arrival.model or session.summary.model or arrival.default_model


def _split(
    rest: Sequence[ClientMessage], turn_id: str, owed: Sequence[ToolCall]
) -> tuple[list[Event], ClientMessage | None]:
    """The events to log before the last user message, and that message. Raises Invalid if there is nothing to answer.

    Replies that the client has from elsewhere become turns of their own, as if they had been run here.
    """
    answers = [index for index, given in enumerate(rest) if given.role == "assistant"]
    start = answers[-1] + 1 if answers else 0
    if start == len(rest):
        raise Invalid("the last message must be the user's or a tool's: there is nothing to answer")
    refuse_strange_results(rest, owed)
    past = rest[:start]
    before = as_ended_turns(past, (f"{turn_id}-{number}" for number in count(1)))
    before += [Imported(format=FORMAT, messages=len(past))] if past else []
    new = rest[start:]
    messages = [given for given in new if given.role == "user"]
    before += [as_result(given, turn_id) for given in new if given.role == "tool"]
    before += [UserSaid(turn_id=turn_id, parts=given.parts, name=given.name) for given in messages[:-1]]
    return before, messages[-1] if messages else None
