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

import msgspec

from holdfast.engine.admission.admit import Admission, UserInput, admit_to
from holdfast.engine.admission.client_request import AdmittedRequest, ClientRequest, PossibleRetry
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.admission.played_messages import as_ended_turns, as_result, refuse_strange_results
from holdfast.engine.admission.target_session import changes_system, find_target
from holdfast.model.errors import Invalid, KeyReused
from holdfast.model.event import Event, Imported, RequestOptions, UserSaid
from holdfast.model.message import ToolCall
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import idempotency, recent_requests, sessions, turn_lookup
from holdfast.store.repos.recent_requests import RecentRequest

FORMAT = "messages of a request"
SEPARATOR = "\n\n"
"""Separates two system texts."""


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
    target = find_target(tx, arrival, at, is_verified=is_verified)
    session, rest = target.session, arrival.messages[target.known :]
    end = turn_lookup.read_log_end(tx, session, target.tail)
    before, last = _split(rest, arrival.turn_id, end.awaited)
    terms = _terms(tx, arrival, session)
    needs_own_turn = before or (terms.system is not None and changes_system(tx, session, terms.system))
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
