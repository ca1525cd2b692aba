"""A client that revises its own history continues its session, instead of getting a fork for every revision.

Three patterns are recognised. All need a session in which nothing runs or waits.

- *Window*: the messages up to the last reply are the end of the log. The client sends only the newest part of its history.
  What follows is input.
- *Undo*: the client replaces the latest exchange: it asks the same again (regenerate), or something else (edit).
- *Rewrite*: the messages contain the last reply of the log, or the beginning of it, but what comes before differs: the
  client has shortened, summarised or decorated its own messages, as many do in each request. Or they contain the arguments
  of the last call as text: the client wanted a structured output.

Undo and rewrite take back the turns after the common part, as `/undo` does, if the same client has sent all of them. The
log keeps them. Anything else is an edit that leaves a branch behind, and becomes a fork.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from holdfast.engine.admission.history_match import ClientHistory, ClientMessage, HistoryEdited, merge
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.context.context import Context
from holdfast.model.client_transcript import NOTHING, ClientTranscript, TranscriptItem, as_data, grow
from holdfast.model.entry import Entry
from holdfast.model.event import Event, Rewound, TurnEnded, TurnStarted
from holdfast.model.session import Session, standing
from holdfast.store.database import Transaction
from holdfast.store.repos import client_history, input_queue, log, sessions, turn_lookup
from holdfast.store.repos.client_history import HistoryPosition

REPLIES_LOOKED_UP = 3
"""How many of the last replies of a request are looked up: some clients end with replies that they have made up."""
MOST_TURNS = 8
"""How many turns one exchange may have: each round of calls to the client's tools is one. Arbitrary."""
LEAST_REPLIES = 2
"""A shorter window could be the end of a stranger's session."""


class Revision(msgspec.Struct, frozen=True):
    """How the messages continue a session: how many of them it has, after turns are taken back if need be."""

    session_id: str
    seq: int
    """The last event when the log was read."""
    known: int
    back: Rewind | None = None


def of_named(
    tx: Transaction, session: Session, edited: HistoryEdited, history: ClientHistory, client: str
) -> Revision | None:
    """How the messages continue the session that the request names; None if they do not."""
    if not is_free(tx, session):
        return None
    if not history.answered:
        return _repeat_of_first(tx, session, history, client)
    if (known := _window(tx, session, history.given)) is not None:
        return Revision(session.id, session.seq, known)
    if edited.position.session_id != session.id:
        return None
    return _taken_back(tx, session, edited.position.seq, history.given, edited.known, client)


def of_caller(
    tx: Transaction, caller: str, edited: HistoryEdited | None, history: ClientHistory, client: str
) -> Revision | None:
    """The session that a request without a name continues; None if there is none, or several fit."""
    if not history.answered:
        return None
    found = {one.session_id: one for one in _candidates(tx, caller, history, client)}
    if not found and edited is not None:
        found = {one.session_id: one for one in _replaced(tx, edited, history, client)}
    return next(iter(found.values())) if len(found) == 1 else None


def still_holds(tx: Transaction, revision: Revision, session: Session) -> bool:
    """Whether a revision that a read has found can be used."""
    return (session.id, session.seq) == (revision.session_id, revision.seq) and is_free(tx, session)


def is_free(tx: Transaction, session: Session) -> bool:
    """Whether no turn of the session runs or waits."""
    summary = session.summary
    is_idle = summary.open_turn is None and session.lease_worker is None and summary.trashed_at is None
    return is_idle and not input_queue.list_waiting(tx, session.id)


def _candidates(tx: Transaction, caller: str, history: ClientHistory, client: str) -> list[Revision]:
    """The sessions of the caller that end with one of the last replies of the messages, and which these continue."""
    items = [item for item, _ in merge(history.given)]
    replies = [item for item in items if item.role == "assistant"][-REPLIES_LOOKED_UP:]
    found: list[Revision] = []
    for reply in replies:
        for position in _ends_with(tx, reply, caller):
            session = sessions.get(tx, position.session_id)
            if is_free(tx, session) and (one := _continued(tx, session, history, client)) is not None:
                found.append(one)
    return found


def _ends_with(tx: Transaction, reply: TranscriptItem, caller: str) -> Iterator[HistoryPosition]:
    """The ends of the caller's sessions that have this reply. Earlier versions stored its hash with its form."""
    for hash_ in {grow(NOTHING, reply), grow(NOTHING, as_data(reply))}:
        yield from client_history.list_by_reply(tx, hash_, caller)


def _continued(tx: Transaction, session: Session, history: ClientHistory, client: str) -> Revision | None:
    """How the messages continue a session that they do not name and that ends with one of their replies."""
    given = history.given
    if sum(one.role == "assistant" for one in given) >= LEAST_REPLIES:
        known = _window(tx, session, given)
        if known is not None and _is_sent_by(log.read(tx, session.id, first=_last_turn(tx, session) + 1), client):
            return Revision(session.id, session.seq, known)
    known_here = client_history.list_known_in_session(tx, [one.hash for one in history.boundaries], session.id)
    common = next(one for one in history.boundaries if one.hash in known_here or one.hash == NOTHING)
    return _taken_back(
        tx, session, known_here.get(common.hash, 1), given, common.count, client, only=("rewrite",), is_sure=False
    )


def _replaced(tx: Transaction, edited: HistoryEdited, history: ClientHistory, client: str) -> list[Revision]:
    """The undo of the latest exchange in the only session with this beginning, which this client has asked for."""
    here = edited.position
    if len({one.session_id for one in client_history.list_in_family(tx, here.hash, here.caller, here.family)}) != 1:
        return []
    session = sessions.get(tx, here.session_id)
    [last] = log.read(tx, session.id, first=here.seq, last=here.seq)
    if not isinstance(last.event, TurnEnded) or not is_free(tx, session):
        return []
    before = turn_lookup.find(tx, session.id, last.event.turn_id)
    if before is None or not client or before.terms.client != client:
        return []  # a common beginning, such as examples, is not a conversation of this client
    one = _taken_back(tx, session, here.seq, history.given, edited.known, client, only=("undo",))
    return [] if one is None else [one]


def _last_turn(tx: Transaction, session: Session) -> int:
    return client_history.find_turns_back(tx, session.id, 1)


def _window(tx: Transaction, session: Session, given: Sequence[ClientMessage]) -> int | None:
    """How many of the messages the log ends with, if that is all of them up to the last reply."""
    replies = [index for index, one in enumerate(given) if one.role == "assistant"]
    known = replies[-1] + 1
    items = [item for item, _ in merge(given[:known])]
    start = client_history.find_turns_back(tx, session.id, len(items))
    shown = _shown(log.read(tx, session.id, first=start + 1))
    if len(given) == known or shown.items or len(shown.settled) < len(items):
        return None
    same = all(grow(NOTHING, a) == grow(NOTHING, b) for a, b in zip(shown.settled[-len(items) :], items, strict=True))
    return known if same else None


def _shown(entries: Sequence[Entry]) -> ClientTranscript:
    shown = ClientTranscript()
    for entry in standing(entries):
        shown.add(entry)
    return shown


def _repeat_of_first(tx: Transaction, session: Session, history: ClientHistory, client: str) -> Revision | None:
    """The undo of the only exchange, if the messages are its input again: the client regenerates its first reply."""
    if client_history.find_turns_back(tx, session.id, MOST_TURNS + 1):  # spares the reading of a longer log
        return None
    entries = log.read(tx, session.id, first=2)
    asked = [item for item in _shown(entries).settled if item.role == "user"]
    given = [item for item, _ in merge(history.given)]
    if [grow(NOTHING, one) for one in asked] != [grow(NOTHING, one) for one in given]:
        return None
    return _taken_back(tx, session, 1, history.given, 0, client, only=("undo",))


def _taken_back(
    tx: Transaction,
    session: Session,
    to_seq: int,
    given: Sequence[ClientMessage],
    known: int,
    client: str,
    *,
    only: tuple[Literal["undo", "rewrite"], ...] = ("undo", "rewrite"),
    is_sure: bool = True,
) -> Revision | None:
    """Take back what follows `to_seq`, if that is an undo or a rewrite by the same client."""
    entries = standing(log.read(tx, session.id, first=to_seq + 1))
    shown = _shown(entries)
    log_items, new = [*shown.settled, *shown.items], [item for item, _ in merge(given[known:])]
    if not log_items or not _is_sent_by(entries, client):
        return None
    pattern = "rewrite" if any(item.role == "assistant" for item in new) else "undo"
    if pattern not in only or not (
        _is_one_exchange(log_items) if pattern == "undo" else _contains_last(new, log_items, is_sure=is_sure)
    ):
        return None
    rewound = Rewound(to_seq=to_seq, why="undo")
    undone: list[Event] = []
    if session.summary.epoch:
        undone = [*Context(log.read(tx, session.id)).undone_by(to_seq)]
    back = Rewind(session.id, session.seq, (*undone, rewound), to_seq, (), len(log_items))
    return Revision(session.id, session.seq, known, back)


def _is_sent_by(entries: Sequence[Entry], client: str) -> bool:
    """Whether this client has sent every turn that was run, and at least one."""
    started = [entry.event for entry in standing(entries) if isinstance(entry.event, TurnStarted)]
    run = [event for event in started if event.worker_id]
    return bool(client and run) and all(event.terms.client == client for event in run)


def _is_one_exchange(items: Sequence[TranscriptItem]) -> bool:
    """Whether the user said nothing after the first reply."""
    first = next((index for index, item in enumerate(items) if item.role == "assistant"), len(items))
    return not any(item.role == "user" for item in items[first:])


def _contains_last(new: Sequence[TranscriptItem], log_items: Sequence[TranscriptItem], *, is_sure: bool) -> bool:
    """Whether the messages contain the last reply of the log, or its beginning.

    If it is not sure that this is the client's session, the message before the reply must be similar as well.
    """
    replies = [index for index, item in enumerate(log_items) if item.role == "assistant"]
    if not replies:
        return False
    last, asked = log_items[replies[-1]], _text_before(log_items, replies[-1])
    return any(
        _is_beginning(item, last) and (is_sure or _is_similar(_text_before(new, index), asked))
        for index, item in enumerate(new)
        if item.role == "assistant"
    )


def _text_before(items: Sequence[TranscriptItem], index: int) -> str:
    return items[index - 1].text.strip() if index else ""


def _is_beginning(item: TranscriptItem, reply: TranscriptItem) -> bool:
    text, whole = item.text.strip(), reply.text.strip()
    if item.calls or reply.calls:
        return grow(NOTHING, as_data(item)) == grow(NOTHING, as_data(reply))
    return (bool(text) and whole.startswith(text)) or as_data(item) == as_data(reply)


def _is_similar(one: str, other: str) -> bool:
    return bool(one and other) and (one in other or other in one)
