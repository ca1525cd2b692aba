"""The background processes, as the engine and the faces see them: a port that the registry fills."""

from typing import Protocol

from holdfast.model.identity import Identity
from holdfast.model.process import Process, Verdict, classify
from holdfast.store import processes
from holdfast.store.database import Transaction

Running = tuple[Process, Verdict]
"""A process that lives, with what it is doing."""


class Processes(Protocol):
    async def list(self, *, session_id: str | None = None, ended: bool = False) -> list[Process]:
        """Processes as they are now, oldest first: those of a session or all, and only if asked those that have ended."""

    async def get(self, ref: str) -> Process:
        """A process as it is now, by its id or the beginning of it. Raises NotFound or Ambiguous."""

    def judge(self, process: Process) -> Verdict:
        """What it is doing, how that is known, and whether it holds back a reset."""

    async def take_stock(self) -> None:
        """Look at all of them now, and write down what has changed."""

    async def stop(self, process: Process, reason: str) -> Process:
        """End all of it; the process as it then is. Raises Unavailable if that cannot be done from here."""


def running(tx: Transaction, session_id: str, ours: Identity, monotonic: float) -> list[Running]:
    """The processes of a session that live, as they were last seen: without a look at them."""
    found = processes.of_session(tx, session_id)
    return [(one, classify(one, ours, int(monotonic * 1e6))) for one in found if one.ended_at is None]
