"""Background processes: known before they are started, seen now and then, and ended once, whoever notices first."""

from collections.abc import Iterable
from typing import cast

import msgspec

from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import ProcessEnded, ProcessesLeft, ProcessesReceived, ProcessExpired, ProcessStarted
from holdfast.model.ids import PROCESS, SHORTEST_PREFIX
from holdfast.model.process import Process, Track
from holdfast.store import log, refs
from holdfast.store.database import Row, Transaction

TRACK = 12
"""Where the track stands in a row."""


def add(tx: Transaction, process: Process) -> None:
    """Write down a process that is about to be started, so that none can run that nobody knows of."""
    tx.run(
        "processes.add",
        id=process.id,
        session=process.session_id,
        command=process.command,
        workdir=process.workdir,
        folder=process.folder,
        host=process.host,
        boot=process.boot,
        at=process.started_at,
        mono=process.started_mono,
        ttl_seconds=process.ttl_seconds,
        track=_written(process.track),
    )
    started = ProcessStarted(process_id=process.id, command=process.command, workdir=process.workdir)
    log.annotate(tx, process.session_id, started, at=process.started_at)


def get(tx: Transaction, process_id: str) -> Process:
    """Raises NotFound."""
    row = tx.one("processes.get", id=process_id)
    if row is None:
        raise NotFound(f"there is no process {process_id}")
    return _process(row)


def resolve(tx: Transaction, ref: str) -> Process:
    """The process of an id or of the beginning of one. Raises NotFound, or Ambiguous with the candidates."""
    what = ("process", "processes")
    found = refs.find(tx, "processes.by_prefix", ref, kind=PROCESS, shortest=SHORTEST_PREFIX, what=what)
    return get(tx, found)


def live(tx: Transaction) -> list[Process]:
    """Those that have not ended, oldest first."""
    return [_process(row) for row in tx.all("processes.live")]


def of_session(tx: Transaction, session_id: str) -> list[Process]:
    """Those of a session, ended ones included, oldest first."""
    return [_process(row) for row in tx.all("processes.of_session", session=session_id)]


def recent(tx: Transaction, limit: int) -> list[Process]:
    """The newest first, ended ones included."""
    return [_process(row) for row in tx.all("processes.recent", limit=limit)]


def identify(tx: Transaction, process_id: str, pid: int, process_started: str) -> None:
    """Write down which program it is; the first word stands."""
    tx.run("processes.identify", id=process_id, pid=pid, process_started=process_started)


def see(tx: Transaction, seen: Iterable[tuple[str, Track]]) -> None:
    """Write down what was last seen of these."""
    tx.many("processes.see", [{"id": process_id, "track": _written(track)} for process_id, track in seen])


def ask_to_stop(tx: Transaction, process_id: str, reason: str) -> None:
    """Write down why it is being ended, before it is."""
    tx.run("processes.ask_to_stop", id=process_id, reason=reason)


def expire(tx: Transaction, process: Process, evidence: str, *, at: int) -> bool:
    """Write down, once, that it runs past its time to live; False if somebody has."""
    if tx.one("processes.expire", id=process.id, at=at) is None:
        return False
    expired = ProcessExpired(
        process_id=process.id, ttl_seconds=process.ttl_seconds, evidence=evidence, command=process.command
    )
    log.annotate(tx, process.session_id, expired, at=at)
    return True


def end(tx: Transaction, process_id: str, reason: str, exit_code: int | None, tail: str, *, at: int) -> Process | None:
    """Write down, once, that it has ended, in its row and in the log of its session; None if somebody has."""
    row = tx.one("processes.end", id=process_id, reason=reason, exit_code=exit_code, at=at)
    if row is None:
        return None
    ended = _process(row)
    fact = ProcessEnded(process_id=ended.id, reason=reason, exit_code=exit_code, command=ended.command, tail=tail)
    log.annotate(tx, ended.session_id, fact, at=at)
    return ended


def leave(tx: Transaction, session_id: str, fact: ProcessesLeft, *, at: int) -> None:
    """Write down what becomes of a session's processes when another takes its place; hand them over if that is it."""
    if fact.action == "hand_over":
        if not fact.to:
            raise Invalid("processes are handed over to a session")
        moved = tuple(cast("str", row[0]) for row in tx.all("processes.hand_over", session=session_id, to=fact.to))
        fact = msgspec.structs.replace(fact, processes=tuple(sorted(moved)))
        if moved:
            received = ProcessesReceived(processes=fact.processes, origin=session_id)
            log.annotate(tx, fact.to, received, at=at)
    if fact.processes:
        log.annotate(tx, session_id, fact, at=at)


def _process(row: Row) -> Process:
    values: list[object] = [*row]
    values[TRACK] = msgspec.json.decode(cast("str", row[TRACK]), type=Track)
    return Process(*values)  # type: ignore[arg-type] # the schema checks the types


def _written(track: Track) -> str:
    return msgspec.json.encode(track).decode("ascii")
