"""Running processes: who they are, their signs of life, and their end."""

from typing import cast

import msgspec

from holdfast.model.errors import DeclaredDead
from holdfast.model.identity import Identity
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

    @property
    def identity(self) -> Identity:
        return Identity(host=self.host, boot=self.boot, pid=self.pid, process_started=self.process_started)

    @property
    def machine(self) -> str:
        """The name of its machine, without what tells machines of the same name apart."""
        return self.host.split("#")[0]

    @property
    def whereabouts(self) -> str:
        """What it is and where it runs, for a person."""
        return f"{self.kind}, pid {self.pid} on {self.machine}"


def register(tx: Transaction, worker_id: str, kind: str, identity: Identity, *, version: str, at: int) -> None:
    """Add a worker that has just started. A worker must be known before it can hold a session."""
    tx.run("workers.register", id=worker_id, kind=kind, version=version, at=at, **msgspec.structs.asdict(identity))


def beat(tx: Transaction, worker_id: str, *, at: int, stalled_since: int | None = None) -> int:
    """One sign of life; the new count. Raises DeclaredDead if the worker was: it must stop."""
    row = tx.one("workers.beat", id=worker_id, at=at, stalled_since=stalled_since)
    if row is None:
        raise _declared_dead(worker_id)
    return cast("int", row[0])


def refuse_the_dead(tx: Transaction, worker_id: str) -> None:
    """Raises DeclaredDead if the worker was: it must stop."""
    worker = get(tx, worker_id)
    if worker is not None and worker.ended_at is not None:
        raise _declared_dead(worker_id)


def _declared_dead(worker_id: str) -> DeclaredDead:
    return DeclaredDead(f"{worker_id} was declared dead while it lived; it holds no session any more and must stop")


def bury(tx: Transaction, worker_id: str, reason: str, *, at: int) -> list[str]:
    """Mark a worker as gone and take all its sessions from it, in one step; their ids.

    Whatever the worker still tries to write finds its tokens outdated. Burying twice finds nothing.
    """
    if tx.one("workers.end", id=worker_id, reason=reason, at=at) is None:
        return []
    return [cast("str", row[0]) for row in tx.all("leases.free_all", worker=worker_id)]


def announce(tx: Transaction, worker_id: str, *, at: int) -> None:
    """Say that a worker is about to leave. It lives, and holds what it holds, until it has."""
    tx.run("workers.announce", id=worker_id, at=at)


def uncleared(tx: Transaction, after: str = "", limit: int = 100) -> list[Worker]:
    """Ended workers whose sessions have not all been seen to, oldest first, from behind an id on."""
    return [Worker(*row) for row in tx.all("workers.uncleared", after=after, limit=limit)]  # type: ignore[arg-type] # the schema checks the types


def clear(tx: Transaction, worker_id: str, *, at: int) -> bool:
    """Write down that nothing of an ended worker is left to see to; False if something is."""
    return tx.count("workers.clear", id=worker_id, at=at) == 1


def get(tx: Transaction, worker_id: str) -> Worker | None:
    row = tx.one("workers.get", id=worker_id)
    return None if row is None else Worker(*row)  # type: ignore[arg-type] # the schema checks the types


def alive(tx: Transaction) -> list[Worker]:
    """Workers that have not ended, oldest first."""
    return [Worker(*row) for row in tx.all("workers.alive")]  # type: ignore[arg-type] # the schema checks the types


def recent(tx: Transaction, limit: int) -> list[Worker]:
    """The newest workers first, ended ones included."""
    return [Worker(*row) for row in tx.all("workers.recent", limit=limit)]  # type: ignore[arg-type] # the schema checks the types
