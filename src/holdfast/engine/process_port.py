"""The port for background processes; `processes.registry` implements it."""

from typing import Protocol

from holdfast.model.process import Process, ProcessVerdict, classify
from holdfast.model.process_identity import Identity
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import processes

Running = tuple[Process, ProcessVerdict]
"""A running process with its classification."""


class ProcessPort(Protocol):
    async def list(self, *, session_id: str | None = None, ended: bool = False) -> list[Process]:
        """Current processes, oldest first: of a session or all, with ended ones only if requested."""

    async def get(self, ref: str) -> Process:
        """A process by its id or an id prefix. Raises NotFound or Ambiguous."""

    def classify(self, process: Process) -> ProcessVerdict:
        """What it is doing, the evidence, and whether it blocks a reset."""

    async def try_refresh(self) -> None:
        """Inspect all of them now, and record the changes. Logs a warning if that fails."""

    async def read_newest(self, process: Process, limit: int) -> str:
        """The last bytes of its output as text. Raises Unavailable for a process of another machine."""

    async def stop(self, process: Process, reason: str) -> Process:
        """End the process and its descendants; returns its new state. Raises Unavailable if this machine cannot do that."""


def running(tx: Transaction, session_id: str, ours: Identity, monotonic: float) -> list[Running]:
    """The running processes of a session as last seen, without a new inspection."""
    found = processes.list_by_session(tx, session_id)
    return [(one, classify(one, ours, int(monotonic * 1e6))) for one in found if one.ended_at is None]


async def list_running(database: Database, registry: ProcessPort | None, session_id: str) -> list[Running]:
    """The running processes of a session, as last seen by the registry of this worker."""
    if registry is None:
        return []
    found = await database.read(processes.list_by_session, session_id)
    return [(one, registry.classify(one)) for one in found if one.ended_at is None]
