"""What must hold in a store whatever happened to the processes that wrote to it."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from holdfast.engine.stats import compute_stats
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, TurnEnded, UserSaid
from holdfast.model.message import ToolCall, text_of
from holdfast.process_lookup import check_process, current_identity
from holdfast.store import verify
from holdfast.store.database import Database
from holdfast.store.repos import log, session_list, workers
from holdfast.torture.fixture import MARKS
from holdfast.torture.result import TrialResult

Head = tuple[str, int, str]
"""A session, the number of its last event, and the hash of that event."""


async def read_verified_logs(database: Database, result: TrialResult) -> dict[str, list[Entry]]:
    """Verify the store and return every sound log. Each problem counts as lost."""
    report = await verify.verify(database)
    for problem in report.problems:
        result.add_lost(f"{problem.session_id or 'the store'}: {problem.what}")
    faulty = {problem.session_id for problem in report.problems}
    ids = [session_id for session_id, _, _ in await database.read(verify.list_heads)]
    return {one: await database.read(log.read, one) for one in ids if one not in faulty}


def check_heads(logs: dict[str, list[Entry]], acknowledged: Iterable[Head], result: TrialResult) -> None:
    """Check that each acknowledged event is at its place, with the same hash over all events before it."""
    for session_id, seq, hash_ in sorted(set(acknowledged)):
        entries = logs.get(session_id, [])
        if seq > len(entries):
            result.add_lost(f"event {seq} of {session_id} was acknowledged and is missing")
        elif entries[seq - 1].hash != hash_:
            result.add_lost(f"event {seq} of {session_id} differs from the acknowledged one")


def check_turns(session_id: str, entries: Sequence[Entry], marks: int, result: TrialResult) -> None:
    """Check that each turn started once and ended as done, that each call has one result, and that no tool acted twice."""
    events = [entry.event for entry in entries]
    said = Counter(event.turn_id for event in events if isinstance(event, UserSaid))
    ended = Counter(event.turn_id for event in events if isinstance(event, TurnEnded))
    for turn_id in said.keys() | ended.keys():
        if said[turn_id] > 1 or ended[turn_id] > 1:
            result.add_doubled(
                f"turn {turn_id} of {session_id} started {said[turn_id]} times and ended {ended[turn_id]} times"
            )
        if not ended[turn_id]:
            result.add_lost(f"turn {turn_id} of {session_id} did not end")
    for event in events:
        if isinstance(event, TurnEnded) and event.outcome != "done":
            result.add_lost(f"turn {event.turn_id} of {session_id} ended as {event.outcome}: {event.reason}")
    _check_calls(session_id, events, marks, result)


def _check_calls(session_id: str, events: Sequence[Event], marks: int, result: TrialResult) -> None:
    parts = [part for event in events if isinstance(event, ModelSaid) for part in event.parts]
    calls = [part.id for part in parts if isinstance(part, ToolCall)]
    ended = [event for event in events if isinstance(event, ToolEnded)]
    if sorted(calls) != sorted(event.call_id for event in ended):
        result.add_lost(f"not every tool call of {session_id} has exactly one result")
    done = sum(event.name == "mark" and event.outcome == "ok" for event in ended)
    unknown = sum(event.name == "mark" and event.outcome == "unknown" for event in ended)
    if marks < done:
        result.add_lost(f"the log of {session_id} records {done} tool runs, but only {marks} happened")
    if marks > done + unknown:
        result.add_doubled(f"the log of {session_id} records at most {done + unknown} tool runs, but {marks} happened")


def count_marks(folder: Path) -> Counter[str]:
    """Count the runs of the tool with a side effect, by session."""
    file = folder / MARKS
    return Counter(line.split()[0] for line in file.read_text().splitlines()) if file.exists() else Counter()


def user_texts(entries: Iterable[Entry]) -> list[str]:
    """The text of each user message, in order."""
    return [text_of(entry.event.parts) for entry in entries if isinstance(entry.event, UserSaid)]


async def check_leaks(database: Database, result: TrialResult, live_workers: Collection[str] = ()) -> None:
    """Check that every session has a live owner, waits or has ended, and that no worker without a process counts as alive."""
    stats = compute_stats(await database.read(session_list.count_by_kind), live_workers)
    for _ in range(stats.leaked):
        result.add_leaked("a session is leased or has an open turn, and no live worker owns it")
    ours = current_identity()
    for worker in await database.read(workers.list_alive):
        if check_process(worker.identity, ours) == "gone":
            result.add_leaked(f"{worker.id} counts as alive, but its process is gone")
