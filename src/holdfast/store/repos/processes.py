"""Background processes: recorded before they start, sampled while they run, and ended once by the first observer."""

from collections.abc import Iterable
from typing import cast

import msgspec

from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import ProcessEnded, ProcessesLeft, ProcessesReceived, ProcessExpired, ProcessStarted
from holdfast.model.ids import PROCESS, SHORTEST_PREFIX
from holdfast.model.process import Process, Track
from holdfast.store import id_prefix
from holdfast.store.database import Row, Transaction
from holdfast.store.repos import log

TRACK = 12
"""The column of the track."""


def add(tx: Transaction, process: Process) -> None:
    """Record a process before it starts, so that no process runs unrecorded."""
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
        track=_encode_track(process.track),
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
    found = id_prefix.resolve_prefix(tx, "processes.by_prefix", ref, kind=PROCESS, shortest=SHORTEST_PREFIX, what=what)
    return get(tx, found)


def list_live(tx: Transaction) -> list[Process]:
    """Processes that have not ended, oldest first."""
    return [_process(row) for row in tx.all("processes.list_live")]


def list_by_session(tx: Transaction, session_id: str) -> list[Process]:
    """The processes of a session, ended ones included, oldest first."""
    return [_process(row) for row in tx.all("processes.list_by_session", session=session_id)]


def list_recent(tx: Transaction, limit: int) -> list[Process]:
    """The newest processes first, ended ones included."""
    return [_process(row) for row in tx.all("processes.list_recent", limit=limit)]


def identify(tx: Transaction, process_id: str, pid: int, process_started: str) -> None:
    """Record the pid and start time of the process, once."""
    tx.run("processes.identify", id=process_id, pid=pid, process_started=process_started)


def record_tracks(tx: Transaction, seen: Iterable[tuple[str, Track]]) -> None:
    """Record the last samples of these processes."""
    tx.many("processes.record_track", [{"id": process_id, "track": _encode_track(track)} for process_id, track in seen])


def set_stop_reason(tx: Transaction, process_id: str, reason: str) -> None:
    """Record why the process is being stopped, before it is. The first reason stays."""
    tx.run("processes.set_stop_reason", id=process_id, reason=reason)


def expire(tx: Transaction, process: Process, evidence: str, *, at: int) -> bool:
    """Record once that the process has exceeded its time to live; False if that is recorded."""
    if tx.one("processes.expire", id=process.id, at=at) is None:
        return False
    expired = ProcessExpired(
        process_id=process.id, ttl_seconds=process.ttl_seconds, evidence=evidence, command=process.command
    )
    log.annotate(tx, process.session_id, expired, at=at)
    return True


def end(tx: Transaction, process_id: str, reason: str, exit_code: int | None, tail: str, *, at: int) -> Process | None:
    """Record once that the process has ended, in its row and in the session's log; None if that is recorded."""
    row = tx.one("processes.end", id=process_id, reason=reason, exit_code=exit_code, at=at)
    if row is None:
        return None
    ended = _process(row)
    fact = ProcessEnded(process_id=ended.id, reason=reason, exit_code=exit_code, command=ended.command, tail=tail)
    log.annotate(tx, ended.session_id, fact, at=at)
    return ended


def record_left_processes(tx: Transaction, session_id: str, fact: ProcessesLeft, *, at: int) -> None:
    """Record what happens to the processes of a session that is replaced; with the action `hand_over`, move them."""
    if fact.action == "hand_over":
        if not fact.to:
            raise Invalid("handing over processes needs a target session")
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


def _encode_track(track: Track) -> str:
    return msgspec.json.encode(track).decode("ascii")
