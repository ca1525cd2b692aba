"""How many sessions there are, whose they are, and how many are nobody's: of those there must be none.

Every session has ended with a reason, is in quarantine, belongs to a living worker, or waits for input. One that
does none of these is leaked: its worker is gone, or its turn is open and nobody works on it.
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from holdfast.store.sessions import Count


class Census(msgspec.Struct, frozen=True):
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


def take_census(counts: Iterable[Count], living: Collection[str]) -> Census:
    """What the counts add up to, with the ids of the workers that are alive. Pure."""
    places: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for row in counts:
        places[_place(row, living)] += row.count
        sources[row.source] += row.count
        if row.end_reason is not None:
            reasons[row.end_reason] += row.count
    return Census(
        total=places.total(),
        owned=places["owned"],
        waiting=places["waiting"],
        quarantined=places["quarantined"],
        leaked=places["leaked"],
        ended=places["ended"],
        by_reason=dict(reasons.most_common()),
        by_source=dict(sources.most_common()),
    )


def _place(row: Count, living: Collection[str]) -> str:
    if row.end_reason is not None:
        return "ended"
    if row.worker_id is not None:
        return "owned" if row.worker_id in living else "leaked"
    if row.is_quarantined:
        return "quarantined"
    return "leaked" if row.is_in_turn else "waiting"
