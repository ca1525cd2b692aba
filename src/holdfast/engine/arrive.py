"""A client's request becomes durable, in one transaction: which session it belongs to, what is new in it, and its turn.

The rules, in this order. A key that was used before leads to its turn. Messages that extend a branch of the
session are input from where the log ends. Messages without an answer of the model are all input, unless they
come under another system text: then they are a side request, answered in a session of its own. Anything else is an
edited history, and becomes a fork. A request that names no session is matched by its history or begins a new one.
A request that goes on from a turn is all input; if others have gone on from it before, it goes on in a fork. One that
repeats a request that failed takes its place.
"""

from collections.abc import Sequence

import msgspec

from holdfast.engine import branches, repeats
from holdfast.engine.admit import Admission, Words, admit
from holdfast.engine.branches import Edited, Extended, Given
from holdfast.model.errors import Conflict, Invalid, KeyReused, NotFound
from holdfast.model.event import (
    Event,
    Imported,
    ModelSaid,
    Rewound,
    SessionOpened,
    Terms,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.ids import SESSION
from holdfast.model.message import ToolCall
from holdfast.model.session import Session, standing
from holdfast.store import aliases, awaiting, histories, inputs, keys, log, sessions, turns
from holdfast.store.database import Transaction
from holdfast.store.inputs import Mode

FORMAT = "messages of a request"


class After(msgspec.Struct, frozen=True):
    """A turn to go on from."""

    session_id: str
    turn_id: str


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sends. Ids are made beforehand; the session's is used if one is begun."""

    turn_id: str
    new_id: str
    messages: tuple[Given, ...]
    caller: str
    """Who is matched to a session without naming it."""
    ref: str | None = None
    """One of our ids, or an alias."""
    channel: str | None = None
    """The caller's own name for a session."""
    system: str | None = None
    model: str | None = None
    """None for the session's own."""
    default_model: str
    terms: Terms = Terms()
    mode: Mode | None = "queue"
    key: str = ""
    request: str = ""
    workdir: str | None = None
    after: After | None = None


class Arrived(msgspec.Struct, frozen=True):
    """What became of it."""

    admission: Admission
    model: str
    new: bool = False
    forked_from: str | None = None


class _Target(msgspec.Struct, frozen=True):
    """Where the messages go, and how many of them are there already."""

    session: Session
    known: int = 0
    new: bool = False
    forked_from: str | None = None


def arrive(tx: Transaction, arrival: Arrival, *, worker_id: str, at: int) -> Arrived:
    """Admit the request. Raises NotFound for a session that is not there, KeyReused, Busy, InQuarantine, or Invalid."""
    owner = f"{arrival.caller} {_said_to(arrival)}"
    if arrival.key and (bound := keys.anywhere(tx, owner, arrival.key)) is not None:
        if bound.request != arrival.request:
            raise KeyReused(f"the idempotency key {arrival.key!r} was used for another request")
        session = sessions.get(tx, bound.session_id)
        return Arrived(Admission(session, bound.turn_id, repeated=True), _model(arrival, session))
    target = _target(tx, arrival, at)
    session, rest = target.session, arrival.messages[target.known :]
    before, last = _split(rest, arrival.turn_id, awaiting.calls(tx, session))
    words = Words(
        turn_id=arrival.turn_id,
        parts=last.parts if last is not None else (),
        name=last.name if last is not None else "",
        mode="queue" if arrival.mode == "steer" and before else arrival.mode,
        caller=owner,
        key=arrival.key,
        request=arrival.request,
        before=tuple(before),
        terms=_terms(tx, arrival, session),
    )
    admission = admit(tx, session.id, words, worker_id=worker_id, at=at)
    return Arrived(admission, words.terms.model, target.new, target.forked_from)


def _said_to(arrival: Arrival) -> str:
    """What the request names, whatever that leads to now: its idempotency key is bound to it."""
    return arrival.after.session_id if arrival.after is not None else arrival.ref or arrival.channel or ""


def _target(tx: Transaction, arrival: Arrival, at: int) -> _Target:
    if arrival.after is not None:
        return _following(tx, arrival, arrival.after, at)
    session = _named(tx, arrival)
    answered = any(given.role == "assistant" for given in arrival.messages)
    if session is not None and (answered or not _is_aside(tx, arrival, session)):
        session = repeats.take_back(tx, session, arrival.messages, at=at)
    found: Extended | Edited | None
    if session is not None:
        found = branches.of_family(tx, session, arrival.messages)
        if isinstance(found, Edited) and not answered:
            if _is_aside(tx, arrival, session):
                return _begin(tx, arrival, at, side_of=session.id)
            return _Target(session)
    else:
        named = arrival.channel is not None
        found = None if named else _matched(tx, arrival, at)
    match found:
        case Extended():
            return _Target(found.session, found.known)
        case Edited():
            return _fork(tx, arrival, found, at)
        case None:
            return _begin(tx, arrival, at)


def _matched(tx: Transaction, arrival: Arrival, at: int) -> Extended | Edited | None:
    """Where the messages of a request that names no session go on."""
    found = branches.of_caller(tx, arrival.caller, arrival.messages)
    if isinstance(found, Edited):
        session = sessions.get(tx, found.place.session_id)
        if repeats.take_back(tx, session, arrival.messages, at=at) is not session:
            return branches.of_caller(tx, arrival.caller, arrival.messages)
    return found


def _following(tx: Transaction, arrival: Arrival, after: After, at: int) -> _Target:
    """The session of the turn, if that is its newest, else a fork that ends with it. Raises NotFound, or Conflict while it is open."""
    session = repeats.take_back(tx, sessions.get(tx, after.session_id), arrival.messages, at=at)
    place = turns.find(tx, session.id, after.turn_id)
    if session.summary.trashed_at is not None or place is None:
        raise NotFound(f"there is no turn {after.turn_id} to go on from")
    if _is_newest(tx, session, place):
        return _Target(session)
    if not place.last:
        raise Conflict(f"turn {after.turn_id} is not over, and others have gone on from it already")
    edited = Edited(histories.Place(session.id, place.last, "", arrival.caller, session.id), 0)
    return _fork(tx, arrival, edited, at)


def _is_newest(tx: Transaction, session: Session, place: turns.Place) -> bool:
    """Whether nothing was said after the turn but what was taken back."""
    waiting = [item.turn_id for item in inputs.waiting(tx, session.id) if item.said is not None]
    if not place.first:
        return place.dropped is None and waiting[-1:] == [place.turn_id]
    if waiting or not place.last:
        return not waiting
    since = log.read(tx, session.id, first=place.last + 1)
    if any(isinstance(entry.event, Rewound) and entry.event.to_seq < place.last for entry in since):
        return False
    return not any(isinstance(entry.event, TurnStarted) for entry in standing(since))


def _named(tx: Transaction, arrival: Arrival) -> Session | None:
    """The session that the request names. Raises NotFound for one of our ids that leads nowhere."""
    if arrival.ref is not None:
        found = arrival.ref if arrival.ref.startswith(SESSION) else None
        found = aliases.find(tx, arrival.ref) or found
        if found is not None:
            session = sessions.get(tx, found)
            if session.summary.trashed_at is not None:
                raise NotFound(f"session {session.id} is in the trash")
            return session
    if arrival.channel is None:
        return None
    current = aliases.current(tx, arrival.channel)
    if current is None or (session := sessions.get(tx, current)).summary.trashed_at is not None:
        return None
    return session


def _begin(tx: Transaction, arrival: Arrival, at: int, *, side_of: str | None = None) -> _Target:
    opened = SessionOpened(
        source="api",
        channel=None if side_of else arrival.channel,
        model=arrival.model or arrival.default_model,
        system=arrival.system,
        workdir=arrival.workdir,
        side_of=side_of,
    )
    session, _ = sessions.create(tx, arrival.new_id, opened, at=at)
    if opened.channel is not None:
        aliases.point(tx, opened.channel, session.id, at=at)
    histories.begin(tx, session, "" if side_of else arrival.caller)
    return _Target(session, new=True)


def _fork(tx: Transaction, arrival: Arrival, edited: Edited, at: int) -> _Target:
    parent, upto = edited.place.session_id, edited.place.seq
    session = sessions.fork(tx, parent, arrival.new_id, at=at, at_seq=upto, source="api", channel=arrival.channel)
    histories.copy(tx, parent, session.id, upto=upto)
    if arrival.channel is not None:
        aliases.point(tx, arrival.channel, session.id, at=at)
    return _Target(session, edited.known, new=True, forked_from=parent)


def _system(tx: Transaction, session: Session) -> str:
    """The session's own system text."""
    opened = log.read(tx, session.id, first=1, last=1)[0].event
    return (opened.system or "") if isinstance(opened, SessionOpened) else ""


def _is_aside(tx: Transaction, arrival: Arrival, session: Session) -> bool:
    """Whether the request comes under another system text than the session's own."""
    return arrival.system is not None and arrival.system.strip() != _system(tx, session).strip()


def _terms(tx: Transaction, arrival: Arrival, session: Session) -> Terms:
    """The terms of the turn. The system text is named only where it is not the session's own."""
    system = arrival.system if _is_aside(tx, arrival, session) else None
    return msgspec.structs.replace(arrival.terms, model=_model(arrival, session), system=system)


def _model(arrival: Arrival, session: Session) -> str:
    return arrival.model or session.summary.model or arrival.default_model


def _split(rest: Sequence[Given], turn_id: str, owed: Sequence[ToolCall]) -> tuple[list[Event], Given | None]:
    """What goes into the log ahead of the last words, and those. Raises Invalid if there is nothing to answer.

    Answers that the client has from elsewhere become turns of their own, so that the log is as if they had been played here.
    """
    answers = [place for place, given in enumerate(rest) if given.role == "assistant"]
    start = answers[-1] + 1 if answers else 0
    if start == len(rest):
        raise Invalid("the last message must be the user's or a tool's: there is nothing to answer")
    before = _played(rest[:start], turn_id)
    _refuse_strange_results(rest, owed)
    new = rest[start:]
    words = [given for given in new if given.role == "user"]
    before += [_result(given, turn_id) for given in new if given.role == "tool"]
    before += [UserSaid(turn_id=turn_id, parts=given.parts, name=given.name) for given in words[:-1]]
    return before, words[-1] if words else None


def _played(past: Sequence[Given], turn_id: str) -> list[Event]:
    events: list[Event] = []
    current = ""
    for number, given in enumerate(past, 1):
        if not current:
            current = f"{turn_id}-{number}"
            events.append(TurnStarted(turn_id=current))
        if given.role == "user":
            events.append(UserSaid(turn_id=current, parts=given.parts, name=given.name))
        elif given.role == "tool":
            events.append(_result(given, current))
        else:
            calls = tuple(call.id for call in given.calls)
            events.append(ModelSaid(turn_id=current, parts=(*given.parts, *given.calls)))
            events.append(TurnEnded(turn_id=current, outcome="done", awaiting=calls))
            current = ""
    if past:
        events.append(Imported(format=FORMAT, messages=len(past)))
    return events


def _result(given: Given, turn_id: str) -> ToolEnded:
    return ToolEnded(turn_id=turn_id, call_id=given.call_id, name=given.name, outcome="ok", parts=given.parts)


def _refuse_strange_results(rest: Sequence[Given], owed: Sequence[ToolCall]) -> None:
    """Raise Invalid for a result that answers no call."""
    left = {call.id for call in owed}
    for given in rest:
        if given.role == "assistant":
            left = {call.id for call in given.calls}
        elif given.role == "tool":
            if given.call_id not in left:
                raise Invalid(
                    f"a tool message has the tool_call_id {given.call_id!r}, and no call of that id waits for a result"
                )
            left.discard(given.call_id)
