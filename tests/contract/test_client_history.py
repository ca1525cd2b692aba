"""The transcripts by which clients are recognised, looked up many at a time."""

from holdfast.model.client_transcript import NOTHING, TranscriptItem, grow
from holdfast.model.event import ModelSaid, SessionOpened, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Text
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import client_history, log, sessions


def talk(tx: Transaction, session_id: str, turns: int) -> list[str]:
    """A session of a caller with some turns; returns the hash at the end of each."""
    session, _ = sessions.create(tx, session_id, SessionOpened(source="api"), at=1)
    client_history.begin(tx, session, "me")
    hashes: list[str] = []
    for number in range(turns):
        turn_id = f"turn-{number}"
        said = [
            UserSaid(turn_id=turn_id, parts=(Text("hi"),)),
            ModelSaid(turn_id=turn_id, parts=(Text(f"yes {number}"),)),
        ]
        events = [TurnStarted(turn_id=turn_id), *said, TurnEnded(turn_id=turn_id, outcome="done")]
        session = log.append_unheld(tx, session_id, events, at=1)
        hashes.append(client_history.catch_up(tx, session).position.hash)
    return hashes


def reply_hash(number: int) -> str:
    return grow(NOTHING, TranscriptItem("assistant", f"yes {number}"))


async def test_known_transcripts_of_a_caller_are_found_in_one_query(database: Database) -> None:
    hashes = await database.write(talk, "hf-one", 3)

    known = await database.read(client_history.list_known, [*hashes, "unknown"], "me")
    of_another = await database.read(client_history.list_known, hashes, "another")

    assert known == set(hashes)
    assert of_another == set()


async def test_known_transcripts_and_ends_of_a_family_are_found(database: Database) -> None:
    hashes = await database.write(talk, "hf-one", 3)
    family = ("me", "hf-one")

    known = await database.read(client_history.list_known_in_family, [NOTHING, *hashes, "unknown"], *family)
    ends = await database.read(client_history.list_ends_in_family, *family)
    of_another = await database.read(client_history.list_known_in_family, hashes, "me", "hf-other")

    assert known == {NOTHING, *hashes}
    assert ends == {hashes[-1]}
    assert of_another == set()


async def test_positions_that_a_rewind_takes_back_are_deleted(database: Database) -> None:
    hashes = await database.write(talk, "hf-one", 3)

    await database.write(client_history.delete_after, "hf-one", 5)

    assert await database.read(client_history.list_ends_in_family, "me", "hf-one") == {hashes[0]}


async def test_sessions_are_found_by_their_last_reply(database: Database) -> None:
    await database.write(talk, "hf-one", 3)
    await database.write(talk, "hf-two", 2)

    by_last = [await database.read(client_history.list_by_reply, reply_hash(n), "me") for n in range(3)]

    assert [[position.session_id for position in found] for found in by_last] == [[], ["hf-two"], ["hf-one"]]
    assert await database.read(client_history.list_by_reply, reply_hash(2), "somebody else") == []


async def test_positions_of_one_session_are_found(database: Database) -> None:
    hashes = await database.write(talk, "hf-one", 3)
    await database.write(talk, "hf-two", 3)

    found = await database.read(client_history.list_known_in_session, [*hashes, "unknown"], "hf-one")
    everywhere = await database.read(client_history.list_of_caller, hashes[0], "me")

    assert sorted(found) == sorted(hashes) and found[hashes[0]] < found[hashes[2]]
    assert [position.session_id for position in everywhere] == ["hf-two", "hf-one"]
    assert await database.read(client_history.find_turns_back, "hf-one", 2) == found[hashes[0]]
    assert await database.read(client_history.find_turns_back, "hf-one", 9) == 0
