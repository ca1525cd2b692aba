"""Prepares a client's request in a read, so that the duration of its write does not depend on the length of the history.

One thread writes for all sessions of a process. What grows with a history is done here: locating the messages, planning
what a retry takes back, and verifying what a fork copies. `admit_request` checks each of these against the store and
repeats the work if something has changed.
"""

import msgspec

from holdfast.engine.admission import failed_request, history_match
from holdfast.engine.admission.client_request import ClientRequest, ContinueFrom
from holdfast.engine.admission.history_match import HistoryEdited, HistoryExtended
from holdfast.engine.admission.prepared_request import PreparedRequest
from holdfast.engine.admission.target_session import find_named, find_revision, is_newest
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import client_history, idempotency, session_forks, sessions, turn_lookup
from holdfast.store.repos.session_forks import SharedLog


def prepare(tx: Transaction, arrival: ClientRequest) -> ClientRequest:
    """The request with what a read can determine. Raises NotFound and Corrupt, as `admit_request` does."""
    if arrival.key and idempotency.find_by_key(tx, arrival.owner, arrival.key) is not None:
        return arrival  # a repeat, which changes nothing
    return msgspec.structs.replace(arrival, prepared=_prepared(tx, arrival))


def _prepared(tx: Transaction, arrival: ClientRequest) -> PreparedRequest:
    prepared = arrival.prepared or arrival.hashed()
    history = prepared.history
    if arrival.after is not None:
        return _after_turn(tx, prepared, arrival.after)
    if arrival.auxiliary == "yes":
        return prepared
    session = find_named(tx, arrival)
    found: HistoryExtended | HistoryEdited | None = None
    if session is not None:
        end = client_history.read_current(tx, session)
        if (retry := failed_request.plan(tx, session, end, history.given)) is not None:
            return PreparedRequest(history, retry)
        found, history = history_match.locate_in_family(tx, session, end, history)
    elif arrival.channel is None:
        found, history = history_match.locate_for_caller(tx, arrival.caller, history)
    if isinstance(found, HistoryExtended) or (session is None and arrival.channel is not None):
        return PreparedRequest(history)
    if session is None and found is not None:
        matched = sessions.get(tx, found.position.session_id)
        retry = failed_request.plan(tx, matched, client_history.read_current(tx, matched), history.given)
        if retry is not None:
            return PreparedRequest(history, retry)
    revision = find_revision(tx, arrival, session, found, history)
    if revision is not None or found is None:
        return PreparedRequest(history, revision=revision, is_revision_searched=True)
    shared = _shared(tx, found, answered=history.answered)
    return PreparedRequest(history, shared=shared, is_revision_searched=True)


def _shared(tx: Transaction, edited: HistoryEdited, *, answered: bool) -> SharedLog | None:
    """The shared log of the fork for an edited history. Messages without a reply are input, not a fork."""
    return session_forks.prepare_fork(tx, edited.position.session_id, edited.position.seq) if answered else None


def _after_turn(tx: Transaction, prepared: PreparedRequest, after: ContinueFrom) -> PreparedRequest:
    """Prepare a request that continues from a turn."""
    session: Session = sessions.get(tx, after.session_id)
    end = client_history.read_current(tx, session)
    if (retry := failed_request.plan(tx, session, end, prepared.history.given)) is not None:
        return msgspec.structs.replace(prepared, retry=retry)
    position = turn_lookup.find(tx, session.id, after.turn_id)
    if position is None or not position.last or is_newest(tx, session, position):
        return prepared
    return msgspec.structs.replace(prepared, shared=session_forks.prepare_fork(tx, session.id, position.last))
