"""Queued input, and requests to stop a turn."""

from holdfast.model.event import UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import input_queue
from holdfast.store.repos.input_queue import Input


def words(turn_id: str) -> Input:
    return Input(turn_id, "queue", UserSaid(turn_id=turn_id, parts=(Text("later"),)))


async def test_a_stop_request_is_seen_by_the_turn_it_names_and_by_no_other(
    database: Database, session: Session
) -> None:
    await database.write(input_queue.put, session.id, words("turn-2"), at=1)
    await database.write(input_queue.request_stop, session.id, "turn-1", at=2)

    async def seen(running: str | None) -> list[tuple[str, str]]:
        found = await database.read(input_queue.list_waiting, session.id, running=running)
        return [(item.turn_id, item.mode) for item in found]

    assert await seen("turn-1") == [("turn-2", "queue"), ("turn-1", "stop")]
    assert await seen("turn-2") == await seen(None) == [("turn-2", "queue")]


async def test_a_repeated_stop_request_counts_once(database: Database, session: Session) -> None:
    await database.write(input_queue.request_stop, session.id, "turn-1", at=1)
    await database.write(input_queue.request_stop, session.id, "turn-1", at=2)

    assert len(await database.read(input_queue.list_waiting, session.id, running="turn-1")) == 1

    await database.write(input_queue.delete_stop_requests, session.id)
    assert await database.read(input_queue.list_waiting, session.id, running="turn-1") == []


async def test_a_stop_request_is_never_read_as_a_message(database: Database, session: Session) -> None:
    await database.write(input_queue.request_stop, session.id, "turn-1", at=1)

    assert await database.write(input_queue.take_next, session.id) is None
