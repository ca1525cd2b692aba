"""The state of the messaging platforms, for the command line and the dashboard."""

from collections.abc import Collection

import msgspec

from holdfast.engine.liveness.janitor import assess_worker
from holdfast.model.process_identity import Identity
from holdfast.store.database import Transaction
from holdfast.store.repos import inbox, outbox, platforms, workers


class PlatformStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration, connection and queues of a platform."""

    name: str
    configured: bool
    state: str
    since: int | None
    worker_id: str | None
    error: str
    error_at: int | None
    gone: str
    """The evidence that the worker which served it has ended; empty if it has not."""
    received: int
    waiting: int
    dead: int
    to_send: int
    unknown: int
    failed: int


def list_statuses(tx: Transaction, configured: Collection[str], ours: Identity) -> list[PlatformStatus]:
    """The platforms that are configured here or known to the store, by name."""
    known = {one.name: one for one in platforms.list_all(tx)}
    arriving = {(name, state): count for name, state, count in inbox.count_by_state(tx)}
    leaving = {(name, state): count for name, state, count in outbox.count_by_state(tx)}
    found = []
    for name in sorted({*known, *configured}):
        one = known.get(name)
        gone = _find_end(tx, one, ours)
        found.append(
            PlatformStatus(
                name=name,
                configured=name in configured,
                state="off" if one is None or gone else one.state,
                since=one.since if one else None,
                worker_id=one.worker_id if one and not gone else None,
                error=one.error if one else "",
                error_at=one.error_at if one else None,
                gone=gone,
                received=one.received if one else 0,
                waiting=sum(arriving.get((name, state), 0) for state in ("waiting", "working")),
                dead=arriving.get((name, "dead"), 0),
                to_send=sum(leaving.get((name, state), 0) for state in ("waiting", "sending")),
                unknown=leaving.get((name, "unknown"), 0),
                failed=leaving.get((name, "failed"), 0),
            )
        )
    return found


def _find_end(tx: Transaction, platform: platforms.PlatformRow | None, ours: Identity) -> str:
    worker = workers.get(tx, (platform and platform.worker_id) or "")
    if worker is None:
        return ""
    verdict = assess_worker(worker, ours)
    return (verdict.evidence or verdict.state) if verdict.state in ("dead", "ended") else ""
