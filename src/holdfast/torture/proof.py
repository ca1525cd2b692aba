"""What must be true of a store after anything that can happen to the processes that wrote to it."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from holdfast.engine.census import take_census
from holdfast.identity import fate, identity
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ToolEnded, TurnEnded, UserSaid
from holdfast.model.message import ToolCall, text_of
from holdfast.store import log, sessions, verify, workers
from holdfast.store.database import Database, Transaction
from holdfast.torture.outcome import Outcome
from holdfast.torture.scene import MARKS

Head = tuple[str, int, str]
"""A session, the number of its last event, and the hash of that."""


async def logs(database: Database, outcome: Outcome) -> dict[str, list[Entry]]:
    """Every log of the store, after all of it was proved; what is wrong with it counts as lost."""
    report = await verify.verify(database)
    for problem in report.problems:
        outcome.lose(f"{problem.session_id or 'the store'}: {problem.what}")
    faulty = {problem.session_id for problem in report.problems}
    ids = [session_id for session_id, _, _ in await database.read(verify.heads)]
    return {one: await database.read(log.read, one) for one in ids if one not in faulty}


def heads_are_there(found: dict[str, list[Entry]], acknowledged: Iterable[Head], outcome: Outcome) -> None:
    """Each event that was acknowledged stands where it stood, with the same hash over all before it."""
    for session_id, seq, hash_ in sorted(set(acknowledged)):
        entries = found.get(session_id, [])
        if seq > len(entries):
            outcome.lose(f"event {seq} of {session_id} was acknowledged and is not there")
        elif entries[seq - 1].hash != hash_:
            outcome.lose(f"event {seq} of {session_id} is not the one that was acknowledged")


def turns_are_whole(session_id: str, entries: Sequence[Entry], marks: int, outcome: Outcome) -> None:
    """Each turn of a session was begun once and came to its end, each call has one result, and nothing acted twice."""
    events = [entry.event for entry in entries]
    said = Counter(event.turn_id for event in events if isinstance(event, UserSaid))
    ended = Counter(event.turn_id for event in events if isinstance(event, TurnEnded))
    for turn_id in said.keys() | ended.keys():
        if said[turn_id] > 1 or ended[turn_id] > 1:
            outcome.double(f"turn {turn_id} of {session_id} was said {said[turn_id]} and ended {ended[turn_id]} times")
        if not ended[turn_id]:
            outcome.lose(f"turn {turn_id} of {session_id} has no end")
    for event in events:
        if isinstance(event, TurnEnded) and event.outcome != "done":
            outcome.lose(f"turn {event.turn_id} of {session_id} ended as {event.outcome}: {event.reason}")
    parts = [part for event in events if isinstance(event, ModelSaid) for part in event.parts]
    asked = [part.id for part in parts if isinstance(part, ToolCall)]
    results = [event for event in events if isinstance(event, ToolEnded)]
    if sorted(asked) != sorted(event.call_id for event in results):
        outcome.lose(f"the calls of {session_id} have not one result each")
    certain = sum(event.name == "mark" and event.outcome == "ok" for event in results)
    unsure = sum(event.name == "mark" and event.outcome == "unknown" for event in results)
    if marks < certain:
        outcome.lose(f"the log of {session_id} tells of something that was not done")
    if marks > certain + unsure:
        outcome.double(f"something was done in {session_id} that its log does not tell, or twice")


def marks_left(folder: Path) -> Counter[str]:
    """How often the tool was run, by session."""
    file = folder / MARKS
    return Counter(line.split()[0] for line in file.read_text().splitlines()) if file.exists() else Counter()


def words(entries: Iterable[Entry]) -> list[str]:
    """What was said, in order."""
    return [text_of(entry.event.parts) for entry in entries if isinstance(entry.event, UserSaid)]


async def nothing_is_leaked(database: Database, outcome: Outcome, living: Collection[str] = ()) -> None:
    """Every session has a living owner, waits or has ended, and no worker counts as alive whose process is gone."""
    census = take_census(await database.read(sessions.stats), living)
    for _ in range(census.leaked):
        outcome.leak("a session is held, or its turn is open, and nobody sees to it")
    ours = identity()
    for worker in await database.read(workers.alive):
        if fate(worker.identity, ours) == "gone":
            outcome.leak(f"{worker.id} counts as alive, and its process is gone")


def heads(tx: Transaction) -> list[Head]:
    return verify.heads(tx)
