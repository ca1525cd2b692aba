"""Finds the session that a client's messages belong to, and how many of them its log already has.

A client may send its whole history with each request, or only the newest message. Nothing is appended unchecked: the
messages are compared with what the client was shown (`model.client_transcript`), by hashes stored for the end of each turn.

All that grows with the history is done before the write: hashing the messages, and searching for the position in a read.
The write checks only that position, and searches again if it has changed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Self

import msgspec

from holdfast.model.client_transcript import NOTHING, ClientTranscript, TranscriptItem, grow, together
from holdfast.model.message import Content, Message, Part, ToolCall, ToolResult, text_of
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import client_history, input_queue, sessions
from holdfast.store.repos.client_history import HistoryEnd, HistoryPosition


class ClientMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a client, except system text."""

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Content, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    failed: bool = False
    """Whether the result of a tool is an error."""

    @property
    def item(self) -> TranscriptItem:
        return TranscriptItem(self.role, text_of(self.parts), self.calls, self.call_id)

    def as_message(self, seq: int) -> Message:
        """The message as one of a log."""
        parts: tuple[Part, ...] = (*self.parts, *self.calls)
        if self.role == "tool":
            parts = (ToolResult(self.call_id, self.parts),)
        return Message(seq, self.role, parts, 0)


class HistoryPrefix(msgspec.Struct, frozen=True):
    """A prefix of the messages: how many, their hash, and whether it contains a reply of the model."""

    count: int
    hash: str
    answered: bool


class HistoryExtended(msgspec.Struct, frozen=True):
    """The session's log is a prefix of the messages; it has `known` of them."""

    session: Session
    known: int


class HistoryEdited(msgspec.Struct, frozen=True):
    """The messages differ from the log after this position, up to which it has `known` of them."""

    position: HistoryPosition
    known: int


class ClientHistory(msgspec.Struct, frozen=True):
    """A client's messages, and what a read has determined about them."""

    given: tuple[ClientMessage, ...]
    boundaries: tuple[HistoryPrefix, ...]
    """Every proper prefix of the messages, the longest first."""
    searched: str | None = None
    """The session whose family was searched in a read; "" if all sessions of the caller were; None if nothing was."""
    found_at: int = 0
    """The index of the boundary that the read has found; their number if none."""
    extends: bool = False
    """Whether the messages extended a log there."""

    @classmethod
    def of(cls, given: tuple[ClientMessage, ...], known: "ClientHistory | None" = None) -> Self:
        """Hash the messages. Those of `known`, with which the messages begin, are not hashed again."""
        return cls(given, boundaries(given, known))

    @property
    def answered(self) -> bool:
        """Whether the messages contain a reply of the model."""
        return any(one.role == "assistant" for one in self.given)


ReadEnd = Callable[[Transaction, Session], HistoryEnd]
"""`client_history.catch_up` in a write, `client_history.read_current` in a read."""


def boundaries(given: tuple[ClientMessage, ...], known: ClientHistory | None = None) -> tuple[HistoryPrefix, ...]:
    """Every proper prefix of the messages, the longest first."""
    settled = (HistoryPrefix(0, NOTHING, answered=False),) if known is None else _settled(known)
    count, hash_, answered = settled[0].count, settled[0].hash, settled[0].answered
    found: list[HistoryPrefix] = []
    for item, length in merge(given[count:]):
        count, hash_ = count + length, grow(hash_, item)
        answered = answered or item.role == "assistant"
        found.append(HistoryPrefix(count, hash_, answered))
    while found and found[-1].count >= len(given):
        found.pop()
    return (*reversed(found), *settled)


def _settled(history: ClientHistory) -> tuple[HistoryPrefix, ...]:
    """The prefixes that stay the same whatever follows: those up to the last message of the user, which joins no other."""
    given, prefixes = history.given, history.boundaries
    last = next((index for index in range(len(given) - 1, -1, -1) if given[index].role == "user"), 0)
    start = next((index for index, prefix in enumerate(prefixes) if prefix.count <= last), len(prefixes))
    return prefixes[start:] if prefixes[start : start + 1] and prefixes[start].count == last else prefixes[-1:]


def merge(given: Sequence[ClientMessage]) -> list[tuple[TranscriptItem, int]]:
    """The messages as they are hashed, each with the number of given messages in it."""
    groups: list[list[TranscriptItem]] = []
    for one in given:
        item = one.item
        joins = groups and item.role == groups[-1][-1].role == "assistant"
        if joins and not any(before.calls for before in groups[-1]):
            groups[-1].append(item)
        else:
            groups.append([item])
    found: list[tuple[TranscriptItem, int]] = []
    leading = 0
    for group in groups:
        items = list(together(group))
        if items:
            found.append((items[0], len(group) + leading))
            leading = 0
        elif found:  # an empty reply belongs to the message before it
            found[-1] = (found[-1][0], found[-1][1] + len(group))
        else:  # and one before all others to the first message
            leading += len(group)
    return found


def locate_in_family(
    tx: Transaction, session: Session, end: HistoryEnd, history: ClientHistory
) -> tuple[HistoryExtended | HistoryEdited, ClientHistory]:
    """As `of_family`, in a read; also the history with the position where a write may start."""
    found, index = _of_family(tx, session, end, history, client_history.read_current)
    if index is None or not client_history.is_current(tx, session):
        return found, history
    return found, _decided(history, session.id, found, index)


def locate_for_caller(
    tx: Transaction, caller: str, history: ClientHistory
) -> tuple[HistoryExtended | HistoryEdited | None, ClientHistory]:
    """As `of_caller`, in a read; also the history with the position where a write may start."""
    found, index = _of_caller(tx, caller, history, client_history.read_current)
    return found, _decided(history, "", found, index)


def _decided(
    history: ClientHistory, searched: str, found: HistoryExtended | HistoryEdited | None, index: int
) -> ClientHistory:
    return msgspec.structs.replace(
        history, searched=searched, found_at=index, extends=isinstance(found, HistoryExtended)
    )


def of_family(
    tx: Transaction, session: Session, end: HistoryEnd, history: ClientHistory
) -> HistoryExtended | HistoryEdited:
    """Where the messages continue the session or a fork of it."""
    return _of_family(tx, session, end, history, client_history.catch_up)[0]


def of_caller(tx: Transaction, caller: str, history: ClientHistory) -> HistoryExtended | HistoryEdited | None:
    """The session that a caller continues without naming it. None if there is none, or several match equally."""
    return _of_caller(tx, caller, history, client_history.catch_up)[0]


def _of_family(
    tx: Transaction, session: Session, end: HistoryEnd, history: ClientHistory, read_end: ReadEnd
) -> tuple[HistoryExtended | HistoryEdited, int | None]:
    """The match and its boundary; the boundary is None if the end of the session decided."""
    here, shown = end.position, end.transcript
    for boundary in history.boundaries:
        if boundary.hash == here.hash:
            known = _goes_on(tx, session, shown, history.given[boundary.count :])
            if known is not None:
                return HistoryExtended(session, boundary.count + known), None
    no_match = HistoryEdited(msgspec.structs.replace(here, seq=1, hash=NOTHING), 0)
    if not history.boundaries[0].answered:
        return no_match, None
    if history.searched == session.id:
        if history.found_at == len(history.boundaries):
            return no_match, history.found_at
        found = _match_at(tx, here, history, history.found_at, read_end)
        if isinstance(found, HistoryExtended) or (found is not None and not history.extends):
            return found, history.found_at
    found, index = _search(tx, here, history, read_end)
    return found or no_match, index


def _search(
    tx: Transaction, here: HistoryPosition, history: ClientHistory, read_end: ReadEnd
) -> tuple[HistoryExtended | HistoryEdited | None, int]:
    """The longest boundary at the end of a log of the family, else the longest within one."""
    hashes = [boundary.hash for boundary in history.boundaries]
    known = client_history.list_known_in_family(tx, hashes, here.caller, here.family)
    ends = client_history.list_ends_in_family(tx, here.caller, here.family)
    edited: tuple[HistoryEdited | None, int] = None, len(hashes)
    for index, hash_ in enumerate(hashes):
        if hash_ not in (known if edited[0] is None else ends):
            continue
        found = _match_at(tx, here, history, index, read_end)
        if isinstance(found, HistoryExtended):
            return found, index
        if edited[0] is None:
            edited = found, index
    return edited


def _match_at(
    tx: Transaction, here: HistoryPosition, history: ClientHistory, index: int, read_end: ReadEnd
) -> HistoryExtended | HistoryEdited | None:
    """The match at one boundary in the family."""
    boundary = history.boundaries[index]
    positions = client_history.list_in_family(tx, boundary.hash, here.caller, here.family)
    positions.sort(key=lambda position: position.session_id != here.session_id)
    extended = _extended(tx, positions, history.given, boundary.count, read_end)
    return extended or (HistoryEdited(positions[0], boundary.count) if positions else None)


def _of_caller(
    tx: Transaction, caller: str, history: ClientHistory, read_end: ReadEnd
) -> tuple[HistoryExtended | HistoryEdited | None, int]:
    """The match and its boundary."""
    for index in _known_to_caller(tx, caller, history):
        boundary = history.boundaries[index]
        first, last = client_history.find_families(tx, boundary.hash, caller)
        if first is None:
            continue
        if first != last:
            return _only_end(tx, caller, history, index, read_end), index
        positions = client_history.list_in_family(tx, boundary.hash, caller, first)
        extended = _extended(tx, positions, history.given, boundary.count, read_end)
        return extended or (HistoryEdited(positions[0], boundary.count) if positions else None), index
    return None, len(history.boundaries)


def _only_end(
    tx: Transaction, caller: str, history: ClientHistory, index: int, read_end: ReadEnd
) -> HistoryExtended | None:
    """The only session of the caller that ends here; others with this beginning have gone on. None if several end here."""
    boundary = history.boundaries[index]
    positions = client_history.list_of_caller(tx, boundary.hash, caller)
    if len(positions) == client_history.BRANCHES:
        return None
    found = {
        one.session.id: one
        for position in positions
        if (one := _extended(tx, [position], history.given, boundary.count, read_end)) is not None
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _known_to_caller(tx: Transaction, caller: str, history: ClientHistory) -> Iterator[int]:
    """The boundaries that may be transcripts of the caller. All but the first are looked up in one query."""
    start = history.found_at if history.searched == "" else 0
    if start == len(history.boundaries) or not history.boundaries[start].answered:
        return
    yield start
    others = [prefix.hash for prefix in history.boundaries[start + 1 :] if prefix.answered]
    known = client_history.list_known(tx, others, caller) if others else set()
    yield from (index for index, hash_ in enumerate(others, start + 1) if hash_ in known)


def _extended(
    tx: Transaction, positions: Sequence[HistoryPosition], given: Sequence[ClientMessage], known: int, read_end: ReadEnd
) -> HistoryExtended | None:
    """The first of the positions after which the log has nothing but the next of the messages."""
    for position in positions:
        session = sessions.get(tx, position.session_id)
        end = read_end(tx, session)
        if end.position.seq != position.seq:
            continue
        if (more := _goes_on(tx, session, end.transcript, given[known:])) is not None:
            return HistoryExtended(session, known + more)
    return None


def _goes_on(tx: Transaction, session: Session, shown: ClientTranscript, rest: Sequence[ClientMessage]) -> int | None:
    """How many of the messages the log has after its last turn; None if it has others, or all of them."""
    waiting = [item.said for item in input_queue.list_waiting(tx, session.id) if item.said is not None]
    tail = [*shown.items, *(TranscriptItem("user", text_of(said.parts)) for said in waiting if said.parts)]
    following = [one.item for one in rest[: len(tail)]]
    return len(tail) if len(rest) > len(tail) and [*map(_said, tail)] == [*map(_said, following)] else None


def _said(item: TranscriptItem) -> str:
    return grow(NOTHING, item)
