"""The best hits of a query, by relevance and recency, grouped by session; with similar words if there are few exact hits.

The cost does not grow with the store: the newest matches are ranked, up to a limit, and similar words are looked for among
a limited number of candidates. `SearchIndex.search` lists all matches without ranking.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.store.search.hit_ranking import recency
from holdfast.store.search.index import EVERYWHERE, SearchHit, SearchIndex, SearchScope
from holdfast.store.search.trigrams import parse_query

RANKED = 300
"""The newest matches that are ranked."""
CANDIDATES = 4_000
"""How many candidates of the index are compared, at most about."""
FEW = 3
"""With fewer exact hits, similar words are looked for as well."""
SIMILAR = 100
SIMILAR_CANDIDATES = 1_500


class SessionHits(msgspec.Struct, frozen=True):
    """The hits in one session, the best first."""

    session_id: str
    hits: list[SearchHit]

    @property
    def count(self) -> int:
        return len(self.hits)


class RankedHits(msgspec.Struct, frozen=True):
    """The ranked hits of a query."""

    hits: list[SearchHit]
    """The best first."""
    complete: bool
    """Whether these are all hits; otherwise older ones were not looked at, and counts are lower limits."""
    similar: bool
    """Whether some of them only have a similar word."""

    def by_session(self) -> list[SessionHits]:
        """The hits grouped by session, the session with the best hit first."""
        found: dict[str, list[SearchHit]] = {}
        for hit in self.hits:
            found.setdefault(hit.session_id, []).append(hit)
        return [SessionHits(session_id, hits) for session_id, hits in found.items()]


async def find(index: SearchIndex, query: str, *, scope: SearchScope = EVERYWHERE) -> RankedHits:
    """Rank the newest events that contain every word of the query. Raises Invalid for an empty query."""
    wanted = parse_query(query)
    exact = await index.collect(wanted, scope, RANKED, most=CANDIDATES)
    near = tuple(term.with_typos() for term in wanted)
    if len(exact.hits) >= FEW or not exact.complete or near == wanted:
        return RankedHits(_ranked(exact.hits), exact.complete, similar=False)
    found = await index.collect(near, scope, SIMILAR, most=SIMILAR_CANDIDATES)
    known = {hit.position for hit in exact.hits}
    more = [hit for hit in found.hits if hit.position not in known]
    return RankedHits([*_ranked(exact.hits), *_ranked(more)], found.complete, similar=bool(more))


async def catch_up_within(index: SearchIndex, seconds: float) -> int:
    """Index new events, for a limited time. Returns how many are left; what was indexed remains."""
    try:
        async with asyncio.timeout(seconds):
            await index.catch_up()
    except TimeoutError:
        pass  # the next search continues from there
    return await index.lag()


def _ranked(hits: Sequence[SearchHit]) -> list[SearchHit]:
    newest = max((hit.at for hit in hits), default=0)
    return sorted(hits, key=lambda hit: (hit.relevance + recency(hit.at, newest), hit.position), reverse=True)
