"""Search results, as `holdfast sessions search --json` prints them and `GET /v1/search` returns them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

from holdfast.interop.documents.sessions import SearchHitItem
from holdfast.interop.serialization import Document

if TYPE_CHECKING:
    from holdfast.store.search.index import SearchHit
    from holdfast.store.search.ranked_search import RankedHits

SearchOrder = Literal["relevance", "recent"]
SearchRole = Literal["user", "assistant", "tool"]


class SearchSessionItem(Document, frozen=True):
    """A session with hits."""

    session_id: str
    title: str | None
    count: int


class SearchResponse(Document, frozen=True):
    """One page of hits. `next` is the value of `before` for the next one."""

    query: str
    order: SearchOrder
    hits: list[SearchHitItem]
    sessions: list[SearchSessionItem]
    """The sessions of all ranked hits, not only of this page, with the number of hits in each."""
    complete: bool
    """Whether the counts include all hits."""
    similar: bool
    """Whether some hits only have similar words."""
    pending: int
    """How many events are not indexed yet, and cannot be found."""
    next: int | None = None

    @classmethod
    def ranked(
        cls, query: str, found: "RankedHits", titles: Mapping[str, str | None], page: range, pending: int = 0
    ) -> Self:
        """One page of ranked hits."""
        return cls(
            query,
            "relevance",
            _items(found.hits[page.start : page.stop], titles),
            [SearchSessionItem(one.session_id, titles[one.session_id], one.count) for one in found.by_session()],
            found.complete,
            found.similar,
            pending,
            next=page.stop if page.stop < len(found.hits) else None,
        )

    @classmethod
    def recent(
        cls, query: str, hits: "Sequence[SearchHit]", titles: Mapping[str, str | None], limit: int, pending: int
    ) -> Self:
        """One page of all hits, newest first."""
        counts: dict[str, int] = {}
        for hit in hits:
            counts[hit.session_id] = counts.get(hit.session_id, 0) + 1
        sessions = [SearchSessionItem(id_, titles[id_], count) for id_, count in counts.items()]
        following = hits[-1].position if len(hits) == limit else None
        is_all = following is None
        return cls(
            query, "recent", _items(hits, titles), sessions, is_all, similar=False, pending=pending, next=following
        )


def _items(hits: "Sequence[SearchHit]", titles: Mapping[str, str | None]) -> list[SearchHitItem]:
    return [SearchHitItem.from_hit(hit, titles[hit.session_id]) for hit in hits]
