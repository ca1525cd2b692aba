"""Find the session of a chat, the turn that it waits for, and the turns that the same message began with."""

from collections.abc import Collection, Sequence

import msgspec

from holdfast.api.ai_sdk.request import UIMessage
from holdfast.api.errors import ApiError
from holdfast.api.headers import SessionNames
from holdfast.engine.submission import AdmittedTurn
from holdfast.model.client_transcript import ClientTranscript
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.event import ModelSaid, Rewound, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.ids import SESSION
from holdfast.model.session import Session, standing
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, input_queue, log, sessions, turn_lookup
from holdfast.store.repos.turn_lookup import TurnPosition

PAGE = 500


class ChatTurn(msgspec.Struct, frozen=True):
    """A turn to follow, and the events of the turns that its message began with."""

    session: Session
    position: TurnPosition
    message_id: str
    before: Sequence[Entry]
    replayed: int
    """The last event of the turn so far."""

    @property
    def admitted(self) -> AdmittedTurn:
        return AdmittedTurn.at(self.session, self.position)


def find_session(tx: Transaction, named: SessionNames) -> Session | None:
    """The session of the chat; None if there is none yet. Raises ApiError for an unknown session id."""
    assert named.ref is not None, "a chat is named by its id"
    found, current = aliases.find_alias_and_channel(tx, named.ref, named.channel)
    session_id = found or current or (named.ref if named.ref.startswith(SESSION) else None)
    if session_id is None:
        return None
    try:
        session = sessions.get(tx, session_id)
    except NotFound as e:
        raise ApiError(404, "session_not_found", str(e)) from e
    return session if session.summary.trashed_at is None else None


def find_active_turn(tx: Transaction, named: SessionNames, message_id: str | None = None) -> ChatTurn | None:
    """The turn of the chat that runs or waits; else the last turn of that message. None if there is neither."""
    session = find_session(tx, named)
    if session is None:
        return None
    turn_id = session.summary.open_turn
    if turn_id is None:
        turn_id = next((item.turn_id for item in input_queue.list_waiting(tx, session.id) if item.said), None)
    if turn_id is None and message_id is not None:
        turn_id = _last_of_message(tx, session, message_id)
    return None if turn_id is None else find_turn(tx, session, turn_id)


def find_turn(tx: Transaction, session: Session, turn_id: str) -> ChatTurn | None:
    """The turn with what its message began with; None if the session has no such turn."""
    position = turn_lookup.find(tx, session.id, turn_id)
    if position is None:
        return None
    entries = [one for one in turn_lookup.read_entries(tx, session.id, position) if _is_of(one, position.turn_id)]
    message_id, before = turn_id, list[Entry]()
    while (earlier := _continued(tx, session, before or entries)) is not None:
        message_id, before = earlier[0], [*earlier[1], *before]
    return ChatTurn(session, position, message_id, before, entries[-1].seq if entries else 0)


def _is_of(entry: Entry, turn_id: str) -> bool:
    return getattr(entry.event, "turn_id", None) == turn_id


def _continued(tx: Transaction, session: Session, entries: Sequence[Entry]) -> tuple[str, list[Entry]] | None:
    """The turn before these events whose calls they begin with results for."""
    start = next((n for n, one in enumerate(entries) if isinstance(one.event, ModelSaid | UserSaid)), len(entries))
    if not entries or start < 2:
        return None  # nothing but the start of the turn comes before its message
    ended = _end_before(tx, session.id, entries[0].seq)
    if ended is None or not any(_is_result(one, ended.awaiting) for one in entries[:start]):
        return None
    position = turn_lookup.find(tx, session.id, ended.turn_id)
    if position is None:
        return None
    found = turn_lookup.read_entries(tx, session.id, position)
    return ended.turn_id, [one for one in found if _is_of(one, ended.turn_id)]


def _is_result(entry: Entry, awaited: Collection[str]) -> bool:
    """Whether the event is the result of one of these calls, which the client has sent."""
    return isinstance(entry.event, ToolEnded) and entry.event.call_id in awaited


def _end_before(tx: Transaction, session_id: str, seq: int) -> TurnEnded | None:
    """The end of the turn before the event; None if that turn was taken back."""
    while seq > 1:
        entries = log.read(tx, session_id, first=max(1, seq - PAGE), last=seq - 1)
        for entry in reversed(entries):
            if isinstance(entry.event, TurnEnded):
                return entry.event
            if isinstance(entry.event, Rewound):
                return None
        seq = entries[0].seq if entries else 0
    return None


def _last_of_message(tx: Transaction, session: Session, message_id: str) -> str | None:
    """The newest turn of the session, if it belongs to this message."""
    ended = _end_before(tx, session.id, session.seq + 1)
    found = None if ended is None else find_turn(tx, session, ended.turn_id)
    return found.position.turn_id if found is not None and found.message_id == message_id else None


def read_newest(tx: Transaction, session: Session, limit: int) -> list[Entry]:
    """The standing entries of the newest turns with at least `limit` messages of users, or the whole log."""
    first, entries = session.seq + 1, list[Entry]()
    while first > 1:
        start = max(1, first - PAGE)
        entries[:0] = log.read(tx, session.id, first=start, last=first - 1)
        first = start
        kept = standing(entries)
        begun = [entry.seq for entry in kept if isinstance(entry.event, TurnStarted)]
        if sum(isinstance(entry.event, UserSaid) for entry in kept) > limit and begun:
            return _from_turn(kept, limit)
    return standing(entries)


def _from_turn(kept: Sequence[Entry], limit: int) -> list[Entry]:
    """The entries from the turn on whose message is the last but `limit`."""
    said = [n for n, entry in enumerate(kept) if isinstance(entry.event, UserSaid)]
    start = said[-limit]
    while start > 0 and not isinstance(kept[start].event, TurnStarted):
        start -= 1
    return list(kept[start:])


def complete_message(tx: Transaction, session: Session, message: UIMessage) -> UIMessage | None:
    """A message of which the client received only a part, as the log has it; None while its turn is open.

    A message that the log does not know stays as it is.
    """
    position = turn_lookup.find(tx, session.id, message.id) if message.id else None
    if position is None:
        return message
    if position.is_open:
        return None
    transcript = ClientTranscript()
    for entry in turn_lookup.read_entries(tx, session.id, position):
        if _is_of(entry, position.turn_id):
            transcript.add(entry)
    if any(item.calls for item in transcript.settled):
        return message  # the client has all of it: it was to run tools
    replies = [item.text for item in transcript.settled if item.role == "assistant"]
    parts = [{"type": "text", "text": text} for text in replies]
    return msgspec.structs.replace(message, parts=parts) if parts else None
