"""Counts sessions by state and owner, and leaked sessions: there must be none.

Every session has ended with a reason, is in quarantine, belongs to a live worker, or waits for input. Any other
session is leaked: its worker is gone, or its turn is open and no worker runs it.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from holdfast.store.repos.session_list import SessionCount


class SessionStats(msgspec.Struct, frozen=True):
    total: int
    owned: int
    waiting: int
    quarantined: int
    leaked: int
    ended: int
    by_reason: dict[str, int]
    by_source: dict[str, int]

    @property
    def open(self) -> int:
        return self.total - self.ended


def compute_stats(counts: Iterable[SessionCount], live_workers: Collection[str]) -> SessionStats:
    """The statistics from the counts and the ids of the live workers. Pure."""
    counts_by_state: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for row in counts:
        counts_by_state[_state(row, live_workers)] += row.count
        sources[row.source] += row.count
        if row.end_reason is not None:
            reasons[row.end_reason] += row.count
    return SessionStats(
        total=counts_by_state.total(),
        owned=counts_by_state["owned"],
        waiting=counts_by_state["waiting"],
        quarantined=counts_by_state["quarantined"],
        leaked=counts_by_state["leaked"],
        ended=counts_by_state["ended"],
        by_reason=dict(reasons.most_common()),
        by_source=dict(sources.most_common()),
    )


def _state(row: SessionCount, live_workers: Collection[str]) -> str:
    if row.end_reason is not None:
        return "ended"
    if row.worker_id is not None:
        return "owned" if row.worker_id in live_workers else "leaked"
    if row.is_quarantined:
        return "quarantined"
    return "leaked" if row.is_in_turn else "waiting"
