"""Which turns are active in the process of which worker, to find the turns that could have caused a crash.

A turn is active while one of its tools runs, and while a replay after a crash prepares its first request. A turn that waits
for a model, an approval or its place in a queue has no row. The rows of a crashed worker stay for a day as evidence.
"""

from typing import cast

import msgspec

from holdfast.store.database import Transaction
from holdfast.store.repos.leases import Lease


class TurnActivity(msgspec.Struct, frozen=True):
    session_id: str
    turn_id: str


def begin(tx: Transaction, lease: Lease, turn_id: str, *, isolated: bool) -> None:
    """Record that the turn is active in the process of the worker that holds the lease."""
    tx.run(
        "activity.begin", worker=lease.worker_id, session=lease.session_id, turn=turn_id, isolated=1 if isolated else 0
    )


def begin_isolated(tx: Transaction, lease: Lease, turn_id: str) -> bool:
    """Like `begin`, for an isolated replay. Returns False and records nothing while another one runs in the fleet."""
    if tx.one("activity.find_other_isolated", session=lease.session_id) is not None:
        return False
    begin(tx, lease, turn_id, isolated=True)
    return True


def end(tx: Transaction, lease: Lease) -> None:
    """Record that no turn of the session runs in this worker's process."""
    tx.run("activity.end", worker=lease.worker_id, session=lease.session_id)


def list_by_worker(tx: Transaction, worker_id: str) -> list[TurnActivity]:
    """The turns that are active in the worker's process, or were when it died."""
    return [
        TurnActivity(cast("str", row[0]), cast("str", row[1]))
        for row in tx.all("activity.list_by_worker", worker=worker_id)
    ]
