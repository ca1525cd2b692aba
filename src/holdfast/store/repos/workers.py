"""Workers: their identity, heartbeats and end."""

from typing import cast

import msgspec

from holdfast.model.errors import DeclaredDead
from holdfast.model.process_identity import Identity
from holdfast.model.times import DAY
from holdfast.store.database import Transaction


class Worker(msgspec.Struct, frozen=True):
    """A row of the worker table, in the order of its columns."""

    id: str
    kind: str
    host: str
    boot: str
    pid: int
    process_started: str
    version: str
    started_at: int
    beat: int
    beat_at: int
    stalled_since: int | None
    ended_at: int | None
    end_reason: str | None
    cleared_at: int | None = None
    leaving_at: int | None = None
    tasks: str = "[]"
    """The state of its background tasks at its last heartbeat, as `supervisor.encode_statuses` writes it."""

    @property
    def identity(self) -> Identity:
        return Identity(host=self.host, boot=self.boot, pid=self.pid, process_started=self.process_started)

    @property
    def machine(self) -> str:
        """The host name, without the suffix that distinguishes hosts of the same name."""
        return self.host.split("#")[0]

    @property
    def whereabouts(self) -> str:
        """Its kind, pid and machine, for messages."""
        return f"{self.kind}, pid {self.pid} on {self.machine}"


def register(tx: Transaction, worker_id: str, kind: str, identity: Identity, *, version: str, at: int) -> None:
    """Add a worker that has just started. A worker must be known before it can hold a session."""
    tx.run("workers.register", id=worker_id, kind=kind, version=version, at=at, **msgspec.structs.asdict(identity))


def record_heartbeat(
    tx: Transaction, worker_id: str, *, at: int, stalled_since: int | None = None, tasks: str | None = None
) -> int:
    """Record a heartbeat, with the state of its tasks unless None; returns the new count.

    Raises DeclaredDead if the worker was declared dead: it must stop.
    """
    row = tx.one("workers.record_heartbeat", id=worker_id, at=at, stalled_since=stalled_since, tasks=tasks)
    if row is None:
        raise _declared_dead(worker_id)
    return cast("int", row[0])


def ensure_alive(tx: Transaction, worker_id: str) -> None:
    """Raises DeclaredDead if the worker was: it must stop."""
    worker = get(tx, worker_id)
    if worker is not None and worker.ended_at is not None:
        raise _declared_dead(worker_id)


def _declared_dead(worker_id: str) -> DeclaredDead:
    return DeclaredDead(f"{worker_id} was declared dead while it was running; it holds no session and must stop")


def mark_dead(tx: Transaction, worker_id: str, reason: str, *, at: int) -> list[str]:
    """Mark a worker as dead and release all its leases in one transaction; returns the session ids.

    Later writes of the worker fail because its tokens are outdated. A repeat returns nothing.
    """
    if tx.one("workers.mark_dead", id=worker_id, reason=reason, at=at) is None:
        return []
    tx.run("activity.delete_old", before=at - DAY)
    return [cast("str", row[0]) for row in tx.all("leases.release_all", worker=worker_id)]


def announce_shutdown(tx: Transaction, worker_id: str, *, at: int) -> None:
    """Record that a worker is shutting down. It keeps its leases until it has ended."""
    tx.run("workers.announce_shutdown", id=worker_id, at=at)


def list_uncleared(tx: Transaction, after: str = "", limit: int = 100) -> list[Worker]:
    """Ended workers whose sessions are not all cleaned up, oldest first, after an id."""
    return [Worker(*row) for row in tx.all("workers.list_uncleared", after=after, limit=limit)]  # type: ignore[arg-type] # the schema checks the types


def mark_cleared(tx: Transaction, worker_id: str, *, at: int) -> bool:
    """Mark an ended worker as cleaned up; False if it still owns a session."""
    return tx.count("workers.mark_cleared", id=worker_id, at=at) == 1


def get(tx: Transaction, worker_id: str) -> Worker | None:
    row = tx.one("workers.get", id=worker_id)
    return None if row is None else Worker(*row)  # type: ignore[arg-type] # the schema checks the types


def list_alive(tx: Transaction) -> list[Worker]:
    """Workers that have not ended, oldest first."""
    return [Worker(*row) for row in tx.all("workers.list_alive")]  # type: ignore[arg-type] # the schema checks the types


def list_recent(tx: Transaction, limit: int) -> list[Worker]:
    """The newest workers first, ended ones included."""
    return [Worker(*row) for row in tx.all("workers.list_recent", limit=limit)]  # type: ignore[arg-type] # the schema checks the types
