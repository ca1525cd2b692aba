"""Changes made outside the program are detected, and their position is named."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdfast.model.entry import encode
from holdfast.model.errors import Corrupt
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.fakes.forks import fork_session

LENGTH = 9
Tamper = Callable[[apsw.Connection], object]


def words(number: int) -> UserSaid:
    return UserSaid(turn_id="turn-1", parts=(Text(f"words {number}"),))


async def tell(path: Path, session_id: str) -> None:
    """A session of nine events."""
    database = await open_sqlite(path)
    await database.write(sessions.create, session_id, SessionOpened(source="chat"), at=1)
    for number in range(2, LENGTH + 1):
        await database.write(log.append_unheld, session_id, [words(number)], at=number + int(session_id[3:]))
    await database.close()


async def resume(path: Path, session_id: str = "hf-1") -> int:
    """How many events a resume would find."""
    database = await open_sqlite(path)
    try:
        return len(await database.read(lambda tx: log.read_complete(tx, sessions.get(tx, session_id))))
    finally:
        await database.close()


def sql(text: str) -> Tamper:
    return lambda connection: connection.execute(text)


def swap(connection: apsw.Connection) -> None:
    connection.execute("UPDATE event SET seq = 1000 WHERE session_id = 'hf-1' AND seq = 4")
    connection.execute("UPDATE event SET seq = 4 WHERE session_id = 'hf-1' AND seq = 5")
    connection.execute("UPDATE event SET seq = 5 WHERE session_id = 'hf-1' AND seq = 1000")


def swap_bodies(connection: apsw.Connection) -> None:
    bodies = dict(connection.execute("SELECT seq, body FROM event WHERE session_id = 'hf-1' AND seq IN (4, 5)"))
    for seq, body in ((4, bodies[5]), (5, bodies[4])):
        connection.execute("UPDATE event SET body = ? WHERE session_id = 'hf-1' AND seq = ?", (body, seq))


def splice(connection: apsw.Connection) -> None:
    """Replaces an event with an unchanged event of another session."""
    row = connection.execute("SELECT kind, at, hash, body FROM event WHERE session_id = 'hf-2' AND seq = 4").fetchone()
    connection.execute(
        "UPDATE event SET (kind, at, hash, body) = (?, ?, ?, ?) WHERE session_id = 'hf-1' AND seq = 4", row
    )


def drop_and_close_the_gap(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM event WHERE session_id = 'hf-1' AND seq = 4")
    for seq in range(5, LENGTH + 1):
        connection.execute("UPDATE event SET seq = ? WHERE session_id = 'hf-1' AND seq = ?", (seq - 1, seq))
    connection.execute("UPDATE session SET seq = seq - 1 WHERE id = 'hf-1'")


AT_4 = "WHERE session_id = 'hf-1' AND seq = 4"
TAMPERING: dict[str, tuple[Tamper, str]] = {
    "an event in the middle is missing": (
        sql(f"DELETE FROM event {AT_4}"),
        "event 4 is missing; the next one stored is 5",
    ),
    "the first event is missing": (
        sql("DELETE FROM event WHERE session_id = 'hf-1' AND seq = 1"),
        "event 1 is missing; the next one stored is 2",
    ),
    "the tail is cut": (
        sql("DELETE FROM event WHERE session_id = 'hf-1' AND seq > 6"),
        "6 events are stored, but its row names event 9",
    ),
    "all events are gone": (
        sql("DELETE FROM event WHERE session_id = 'hf-1'"),
        "0 events are stored, but its row names event 9",
    ),
    "a word was changed": (
        sql(f"UPDATE event SET body = replace(body, 'words', 'swords') {AT_4}"),
        "event 4 .*was changed",
    ),
    "a time was changed": (sql(f"UPDATE event SET at = at + 1 {AT_4}"), "event 4 .*was changed"),
    "a kind was changed": (sql(f"UPDATE event SET kind = 'model_said' {AT_4}"), "event 4 .*was changed"),
    "a hash was changed": (sql(f"UPDATE event SET hash = replace(hash, '0', '1') {AT_4}"), "event 4 .*was changed"),
    "a hash is no text": (sql(f"UPDATE event SET hash = CAST(x'ff' AS TEXT) {AT_4}"), "event 4 .*was changed"),
    "a letter is foreign": (sql(f"UPDATE event SET body = replace(body, 'o', 'ö') {AT_4}"), "event 4 .*was changed"),
    "a byte is no letter": (sql(f"UPDATE event SET body = CAST(x'7bff7d' AS TEXT) {AT_4}"), "event 4 .*was changed"),
    "a body is empty": (sql(f"UPDATE event SET body = '' {AT_4}"), "event 4 .*was changed"),
    "two events changed places": (swap, "event 4 .*was changed"),
    "two bodies changed places": (swap_bodies, "event 4 .*was changed"),
    "an event of another session was put in": (splice, "event 4 .*was changed"),
    "one is missing and the numbers closed up": (drop_and_close_the_gap, "event 4 .*was changed"),
    "an event was added": (
        sql("INSERT INTO event SELECT NULL, session_id, 10, kind, at, hash, body FROM event " + AT_4),
        "event 10 .*was changed",
    ),
    "the head counts less": (
        sql("UPDATE session SET seq = 8 WHERE id = 'hf-1'"),
        "9 events are stored, but its row names event 8",
    ),
    "the head counts more": (
        sql("UPDATE session SET seq = 10 WHERE id = 'hf-1'"),
        "9 events are stored, but its row names event 10",
    ),
    "the head has another hash": (sql("UPDATE session SET hash = 'x' WHERE id = 'hf-1'"), ".*another hash"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "place"), TAMPERING.values(), ids=TAMPERING.keys())
async def test_an_incomplete_history_is_never_returned_as_complete(tmp_path: Path, tamper: Tamper, place: str) -> None:
    path = tmp_path / "holdfast.db"
    for session_id in ("hf-1", "hf-2"):
        await tell(path, session_id)
    assert await resume(path) == LENGTH
    connection = apsw.Connection(str(path))
    tamper(connection)
    connection.close()

    with pytest.raises(Corrupt, match=f"session hf-1: {place}"):
        await resume(path)
    assert await resume(path, "hf-2") == LENGTH, "the others are not affected"


async def test_damage_is_not_copied_into_a_fork_and_a_fork_can_save_the_part_before_it(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    for session_id in ("hf-1", "hf-2"):
        await tell(path, session_id)
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE event SET body = replace(body, 'words', 'swords') {AT_4}")
    connection.execute("DELETE FROM event WHERE session_id = 'hf-2' AND seq > 6")
    connection.close()
    database = await open_sqlite(path)
    try:
        for at_seq in (None, 4, LENGTH):
            with pytest.raises(Corrupt, match=r"event 4 .*was changed"):
                await database.write(fork_session, "hf-1", "hf-3", at=20, at_seq=at_seq)
        with pytest.raises(Corrupt, match="event 7 is missing"):
            await database.write(fork_session, "hf-2", "hf-3", at=20)
        fork = await database.write(fork_session, "hf-1", "hf-3", at=20, at_seq=3)
        assert len(await database.read(log.read_complete, fork)) >= 4
    finally:
        await database.close()


async def test_an_event_of_a_later_release_stops_the_read_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    await tell(path, "hf-1")
    connection = apsw.Connection(str(path))
    head = connection.execute("SELECT hash FROM session WHERE id = 'hf-1'").get
    body = encode(words(10))
    fresh = log.link(head, "teleported", 10, body)
    connection.execute(
        "INSERT INTO event (session_id, seq, kind, at, hash, body) VALUES ('hf-1', 10, 'teleported', 10, ?, ?)",
        (fresh, body),
    )
    connection.execute("UPDATE session SET seq = 10, hash = ? WHERE id = 'hf-1'", (fresh,))
    connection.close()

    with pytest.raises(Corrupt, match="teleported"):
        await resume(path)


async def test_appending_to_a_damaged_log_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    for session_id in ("hf-1", "hf-2"):
        await tell(path, session_id)
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE event SET body = replace(body, 'words', 'swords') {AT_4}")
    connection.execute("DELETE FROM event WHERE session_id = 'hf-2' AND seq > 6")
    connection.close()
    database = await open_sqlite(path)
    await database.write(log.append_unheld, "hf-1", [words(10)], at=10)
    await database.close()

    with pytest.raises(Corrupt, match="event 4"):
        await resume(path)
