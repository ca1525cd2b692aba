"""Adds messages of a client to a session without asking the model, and removes messages from its context."""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.admission.played_messages import as_ended_turns, refuse_strange_results
from holdfast.engine.admission.turn_start import reopening, settle_calls
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid, KeyReused, NotFound
from holdfast.model.event import (
    Event,
    Imported,
    MessageRemoved,
    MetadataChanged,
    SessionOpened,
)
from holdfast.model.message import ToolCall
from holdfast.model.session import Session, as_message
from holdfast.store.database import Transaction
from holdfast.store.repos import client_history, idempotency, leases, log, recent_requests, sessions, turn_lookup
from holdfast.store.repos.recent_requests import RecentRequest

FORMAT = "items of a conversation"


class ItemsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that adds messages. Its repeat adds nothing: one with the same key, or a numbered retry of the same body."""

    given: Sequence[ClientMessage]
    turn_ids: Sequence[str]
    """An id for each message. There is at least one: the first identifies the request."""
    owner: str
    """The caller and what it changes: keys and retries are looked up under that."""
    key: str = ""
    request: str
    """A digest of the body."""
    retried: bool = False
    """Whether the client says that it has sent this request before."""
    worker_id: str
    at: int


class AddedItems(msgspec.Struct, frozen=True):
    """The session, and the first turn of the messages, which a repeat did not add."""

    session: Session
    turn_id: str


def create_conversation(
    tx: Transaction,
    session_id: str,
    opened: SessionOpened,
    asked: ItemsRequest,
    metadata: dict[str, str],
    *,
    is_answered: Callable[[str], bool],
) -> AddedItems:
    """Create a session with messages and metadata, all or nothing. Raises KeyReused, or Invalid for a result without a call."""
    if (repeated := _find_repeated(tx, asked, is_answered)) is not None:
        return repeated
    session, _ = sessions.create(tx, session_id, opened, at=asked.at)
    client_history.begin(tx, session, "")
    events: list[Event] = [MetadataChanged(metadata=metadata)] if metadata else []
    session = log.extend(tx, session, [*events, *as_turns(asked.given, asked.turn_ids, ())], at=asked.at)
    return _record(tx, session, asked)


def add_items(
    tx: Transaction, session_id: str, asked: ItemsRequest, *, is_answered: Callable[[str], bool]
) -> AddedItems:
    """Append the messages to a verified log.

    Raises NotFound, KeyReused, Invalid for a result without a call, Busy while a worker holds the session. `is_answered`
    tells of a request that its client has the answer: an equal one is then new.
    """
    session = _get(tx, session_id)
    if (repeated := _find_repeated(tx, asked, is_answered)) is not None:
        return repeated
    end = turn_lookup.read_log_end(tx, session)
    if session.summary.open_turn is not None:
        raise leases.make_busy_error(tx, session_id)
    events = [*reopening(session), *as_turns(asked.given, asked.turn_ids, end.awaited)]
    return _record(tx, log.append_unheld(tx, session_id, events, at=asked.at), asked)


def _find_repeated(tx: Transaction, asked: ItemsRequest, is_answered: Callable[[str], bool]) -> AddedItems | None:
    """What an equal request has added, if this one repeats it. Raises KeyReused."""
    if asked.key and (bound := idempotency.find_by_key(tx, asked.owner, asked.key)) is not None:
        if bound.request != asked.request:
            raise KeyReused(f"the idempotency key {asked.key!r} was used for another request")
        return AddedItems(sessions.get(tx, bound.session_id), bound.turn_id)
    recent = recent_requests.find_newest(tx, asked.owner, asked.request, at=asked.at) if asked.retried else None
    if recent is None or is_answered(recent.turn_id):
        return None
    session = sessions.get(tx, recent.session_id)
    if session.summary.trashed_at is not None:
        return None
    return _bind(tx, AddedItems(session, recent.turn_id), asked)


def _record(tx: Transaction, session: Session, asked: ItemsRequest) -> AddedItems:
    """Record the request, to recognise its repeats."""
    added = AddedItems(session, asked.turn_ids[0])
    recent = RecentRequest(session.id, added.turn_id, asked.worker_id)
    recent_requests.add(tx, asked.owner, asked.request, recent, at=asked.at)
    return _bind(tx, added, asked)


def _bind(tx: Transaction, added: AddedItems, asked: ItemsRequest) -> AddedItems:
    if asked.key:
        about = {"request": asked.request, "turn_id": added.turn_id}
        idempotency.claim(tx, added.session.id, asked.owner, asked.key, **about, at=asked.at)
    return added


def read_added(tx: Transaction, added: AddedItems) -> list[Entry]:
    """The events of one request that added messages."""
    position = turn_lookup.find(tx, added.session.id, added.turn_id)
    assert position is not None, "the transaction that added the messages is committed"
    entries = log.read(tx, added.session.id, first=position.first)
    return entries[: next(n for n, entry in enumerate(entries, 1) if isinstance(entry.event, Imported))]


def remove_item(tx: Transaction, session_id: str, seq: int, *, at: int) -> Session:
    """Remove a message from the context. Raises NotFound, Invalid if it is not a message, and Busy as `add_items`."""
    _get(tx, session_id)
    found = log.read(tx, session_id, first=seq, last=seq)
    if not found or as_message(found[0]) is None:
        raise Invalid(f"event {seq} of session {session_id} is not a message")
    return log.append_unheld(tx, session_id, [MessageRemoved(seq=seq)], at=at)


def get_metadata(tx: Transaction, session_id: str) -> dict[str, str]:
    """The client's metadata of the session."""
    seq = turn_lookup.find_newest(tx, session_id, "metadata_changed")
    event = log.read(tx, session_id, first=seq, last=seq)[0].event if seq else None
    return event.metadata if isinstance(event, MetadataChanged) else {}


def _get(tx: Transaction, session_id: str) -> Session:
    session = sessions.get(tx, session_id)
    if session.summary.trashed_at is not None:
        raise NotFound(f"session {session_id} is in the trash")
    return session


def as_turns(given: Sequence[ClientMessage], turn_ids: Sequence[str], owed: Sequence[ToolCall]) -> list[Event]:
    """The messages as turns that are over, each up to a reply of the model. There is an id for each message.

    `owed` are the calls that wait for a result. Raises Invalid for a result that answers no call.
    """
    refuse_strange_results(given, owed)
    events = as_ended_turns(given, turn_ids)
    return [*settle_calls(events, owed), Imported(format=FORMAT, messages=len(given))] if events else []
