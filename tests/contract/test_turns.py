"""The position of a turn: queued, running, ended, joined to another, or withdrawn."""

import pytest

from holdfast.model.event import (
    Event,
    InputDropped,
    RequestOptions,
    ResponseDeleted,
    Titled,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import input_queue, log, turn_lookup
from holdfast.store.repos.input_queue import Input
from tests.contract.logs import whole_turn

TERMS = RequestOptions(model="play", echo={"store": "true"})


async def write(database: Database, session: Session, *events: Event) -> None:
    await database.write(log.append_unheld, session.id, events, at=1)


async def test_a_turn_is_found_with_its_first_and_last_event(database: Database, session: Session) -> None:
    await write(database, session, *whole_turn("turn-1"), Titled(title="x"), *whole_turn("turn-2"))

    first = await database.read(turn_lookup.find, session.id, "turn-1")
    second = await database.read(turn_lookup.find, session.id, "turn-2")

    assert first is not None and second is not None
    length = len(whole_turn())
    assert (first.first, first.last) == (2, length + 1)
    assert (second.first, second.last) == (length + 3, 2 * length + 2)
    entries = await database.read(turn_lookup.read_entries, session.id, second)
    assert [entry.event for entry in entries] == whole_turn("turn-2")


async def test_an_open_turn_has_no_end_yet(database: Database, session: Session) -> None:
    await write(database, session, TurnStarted(turn_id="turn-1", terms=TERMS))

    place = await database.read(turn_lookup.find, session.id, "turn-1")

    assert place is not None
    assert (place.first, place.last, place.is_open, place.terms) == (2, 0, True, TERMS)


async def test_queued_input_is_found(database: Database, session: Session) -> None:
    said = UserSaid(turn_id="turn-9", parts=(Text("later"),))
    await database.write(input_queue.put, session.id, Input("turn-9", "queue", said, (), TERMS), at=1)

    place = await database.read(turn_lookup.find, session.id, "turn-9")

    assert place is not None
    assert (place.first, place.is_open, place.terms) == (0, True, TERMS)


async def test_input_that_joined_a_turn_is_in_it_from_there_on(database: Database, session: Session) -> None:
    joined = UserSaid(turn_id="turn-1", parts=(Text("also"),), input_id="turn-2")
    start, *rest = whole_turn("turn-1")
    await write(database, session, start, *rest[:2], joined, *rest[2:])

    place = await database.read(turn_lookup.find, session.id, "turn-2")

    assert place is not None
    assert (place.turn_id, place.first, place.last) == ("turn-1", 5, len(rest) + 3)


async def test_withdrawn_input_is_found_as_withdrawn(database: Database, session: Session) -> None:
    dropped = InputDropped(turn_id="turn-1", parts=(Text("never mind"),), terms=TERMS)
    await database.write(log.annotate, session.id, dropped, at=1)

    place = await database.read(turn_lookup.find, session.id, "turn-1")

    assert place is not None and place.dropped == dropped and not place.is_open


async def test_another_turn_is_not_found(database: Database, session: Session) -> None:
    await write(database, session, *whole_turn("turn-11"))

    for turn_id in ("turn-1", "turn-%", "turn-__", ""):
        assert await database.read(turn_lookup.find, session.id, turn_id) is None


@pytest.mark.parametrize("turn_id", ["turn-1", "turn-2"])
async def test_only_the_response_that_was_deleted_is_deleted(
    database: Database, session: Session, turn_id: str
) -> None:
    ends = [TurnEnded(turn_id=id_, outcome="done") for id_ in ("turn-1", "turn-2")]
    await write(database, session, TurnStarted(turn_id="turn-1"), ends[0], TurnStarted(turn_id="turn-2"), ends[1])
    await database.write(log.annotate, session.id, ResponseDeleted(turn_id="turn-2"), at=1)

    place = await database.read(turn_lookup.find, session.id, turn_id)

    assert place is not None
    assert await database.read(turn_lookup.is_deleted, session.id, turn_id, place) is (turn_id == "turn-2")
