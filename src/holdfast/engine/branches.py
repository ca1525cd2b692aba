"""Which session a client's messages belong to, and how many of them its log has already.

A client may send its whole history with each request, or only the newest words. Nothing is ever appended blindly:
what it sends is compared with what it was shown (`model.shown`), by hashes that are kept for the end of each turn.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.model.message import Content, ToolCall, text_of
from holdfast.model.session import Session
from holdfast.model.shown import NOTHING, Item, Shown, grow, together
from holdfast.store import histories, inputs, sessions
from holdfast.store.database import Transaction
from holdfast.store.histories import Place


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One message as a client sends it. System text is not among them."""

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Content, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""

    @property
    def item(self) -> Item:
        return Item(self.role, text_of(self.parts), self.calls, self.call_id)


class Boundary(msgspec.Struct, frozen=True):
    """A beginning of the messages: how many, their hash, and whether the model has spoken among them."""

    count: int
    hash: str
    answered: bool


class Extended(msgspec.Struct, frozen=True):
    """The session's log is a beginning of the messages; `known` of them are in it."""

    session: Session
    known: int


class Edited(msgspec.Struct, frozen=True):
    """The messages leave the log at this place, of which `known` of them are a part."""

    place: Place
    known: int


def boundaries(given: Sequence[Given]) -> list[Boundary]:
    """Every beginning of the messages that leaves something to say, the longest first."""
    found = [Boundary(0, NOTHING, answered=False)]
    count, hash_, answered = 0, NOTHING, False
    for item, length in _merged(given):
        count, hash_ = count + length, grow(hash_, item)
        answered = answered or item.role == "assistant"
        found.append(Boundary(count, hash_, answered))
    return [boundary for boundary in reversed(found) if boundary.count < len(given)]


def _merged(given: Sequence[Given]) -> list[tuple[Item, int]]:
    """The messages as they are hashed, each with how many of those given went into it."""
    groups: list[list[Item]] = []
    for one in given:
        item = one.item
        goes_on = groups and item.role == groups[-1][-1].role == "assistant"
        if goes_on and not any(before.calls for before in groups[-1]):
            groups[-1].append(item)
        else:
            groups.append([item])
    found: list[tuple[Item, int]] = []
    for group in groups:
        items = list(together(group))
        if items:
            found.append((items[0], len(group)))
        elif found:  # an answer that says nothing belongs to what stands before it
            found[-1] = (found[-1][0], found[-1][1] + len(group))
    return found


def of_family(tx: Transaction, session: Session, given: Sequence[Given]) -> Extended | Edited:
    """Where in the session, or in a fork of it, the messages go on."""
    here, shown = histories.catch_up(tx, session)
    edited: Edited | None = None
    beginnings = boundaries(given)
    for boundary in beginnings:
        if boundary.hash == here.hash and (known := _goes_on(tx, session, shown, given[boundary.count :])) is not None:
            return Extended(session, boundary.count + known)
    if not beginnings[0].answered:
        return Edited(msgspec.structs.replace(here, seq=1, hash=NOTHING), 0)
    for boundary in beginnings:
        places = histories.in_family(tx, boundary.hash, here.caller, here.family)
        places.sort(key=lambda place: place.session_id != session.id)
        extended = _extended(tx, places, given, boundary.count)
        if extended is not None:
            return extended
        if edited is None and places:
            edited = Edited(places[0], boundary.count)
    return edited or Edited(msgspec.structs.replace(here, seq=1, hash=NOTHING), 0)


def of_caller(tx: Transaction, caller: str, given: Sequence[Given]) -> Extended | Edited | None:
    """The session that a caller who names none goes on with. None if there is none, or nothing tells which of several."""
    for boundary in boundaries(given):
        if not boundary.answered:
            return None
        first, last = histories.families(tx, boundary.hash, caller)
        if first is None:
            continue
        if first != last:
            return None
        places = histories.in_family(tx, boundary.hash, caller, first)
        extended = _extended(tx, places, given, boundary.count)
        if extended is not None:
            return extended
        return Edited(places[0], boundary.count) if places else None
    return None


def _extended(tx: Transaction, places: Sequence[Place], given: Sequence[Given], known: int) -> Extended | None:
    """The first of the places after which the log holds no more than what comes next in the messages."""
    for place in places:
        session = sessions.get(tx, place.session_id)
        last, shown = histories.catch_up(tx, session)
        if last.seq != place.seq:
            continue
        if (more := _goes_on(tx, session, shown, given[known:])) is not None:
            return Extended(session, known + more)
    return None


def _goes_on(tx: Transaction, session: Session, shown: Shown, rest: Sequence[Given]) -> int | None:
    """How many of the messages the log has after the end of its last turn; None if it has others, or all of them."""
    waiting = [item.said for item in inputs.waiting(tx, session.id) if item.said is not None]
    tail = [*shown.items, *(Item("user", text_of(said.parts)) for said in waiting if said.parts)]
    following = [one.item for one in rest[: len(tail)]]
    return len(tail) if len(rest) > len(tail) and [*map(_said, tail)] == [*map(_said, following)] else None


def _said(item: Item) -> str:
    return grow(NOTHING, item)
