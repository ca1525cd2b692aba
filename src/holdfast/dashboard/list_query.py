"""The filters and the order of the list of sessions: the parameters of its address."""

from typing import cast, get_args
from urllib.parse import urlencode

import msgspec

from holdfast.interop.documents.search import SearchRole
from holdfast.model.errors import Invalid
from holdfast.model.event import Source
from holdfast.model.price import NANO
from holdfast.model.session import State
from holdfast.model.times import DAY, parse_day
from holdfast.store.repos import log, session_list
from holdfast.store.repos.dashboard_queries import Sort, SortedQuery

FAILED = "failed"
"""A filter beside the states: idle sessions whose newest turn failed."""
STATES: tuple[str, ...] = ("asking", FAILED, "running", "waiting", "interrupted", "quarantined", "ended")
"""The filters, what needs a person first."""
assert {*get_args(State), FAILED} == {*STATES}, "every state has a filter"
SORTS: tuple[str, ...] = get_args(Sort)
SOURCES: tuple[str, ...] = get_args(Source)
ROLES: tuple[str, ...] = get_args(SearchRole)
UNFILTERED = ("q", "role", "tool", "sort", "cursor")
"""Parameters that a list without a search does not filter by."""


class SessionListQuery(msgspec.Struct, frozen=True):
    """The query parameters of the page."""

    q: str = ""
    state: str = ""
    source: str = ""
    channel: str = ""
    model: str = ""
    folder: str = ""
    since: str = ""
    until: str = ""
    cost: str = ""
    sort: str = ""
    pinned: str = ""
    trash: str = ""
    role: str = ""
    tool: str = ""
    cursor: str = ""

    @property
    def is_filtered(self) -> bool:
        """Whether the list shows less than all sessions outside the trash."""
        return any(getattr(self, name) for name in self.__struct_fields__ if name not in UNFILTERED)

    @property
    def has_folded(self) -> bool:
        """Whether filters are in use that the page keeps folded."""
        return any(
            (self.source, self.model, self.folder, self.since, self.until, self.cost, self.sort, self.role, self.tool)
        )

    @property
    def needs_scan(self) -> bool:
        """Whether the list needs a scan of all sessions; a page of the others costs the same in a store of any size."""
        scanned = (self.folder, self.since, self.until, self.cost, self.sort)
        return any(scanned) or self.state in (FAILED, "waiting")

    @property
    def filters(self) -> session_list.SessionFilters:
        """Raises Invalid for an unknown state, source or role."""
        if self.state not in ("", *STATES) or self.source not in ("", *SOURCES) or self.role not in ("", *ROLES):
            raise Invalid("unknown state, source or role")
        state = "waiting" if self.state == FAILED else self.state
        return session_list.SessionFilters(
            source=self.source or None,
            channel=self.channel or None,
            model=self.model or None,
            state=cast("State", state) if state else None,
            pinned=1 if self.pinned else None,
            trashed=1 if self.trash else 0,
        )

    @property
    def sorted_query(self) -> SortedQuery:
        """Raises Invalid for a value that is not a day, an amount or a known order."""
        if self.sort not in ("", *SORTS):
            raise Invalid(f"unknown order {self.sort!r}; use {', '.join(SORTS)}")
        return SortedQuery(
            filters=self.filters,
            sort=cast("Sort", self.sort or "activity"),
            folder=self.folder,
            since=parse_day(self.since) if self.since else 0,
            until=parse_day(self.until) + DAY if self.until else log.TO_THE_END,
            min_cost=parse_dollars(self.cost) if self.cost else 0,
            failed={FAILED: True, "waiting": False}.get(self.state),
        )

    def url(self, **changes: str) -> str:
        """The URL of the first page with some parameters changed."""
        parameters = {**msgspec.structs.asdict(self), "cursor": "", **changes}
        encoded = urlencode({name: value for name, value in parameters.items() if value})
        return f"/?{encoded}" if encoded else "/"


def parse_dollars(text: str) -> int:
    """An amount in billionths of a US dollar. Raises Invalid."""
    try:
        return max(0, min(round(float(text) * NANO), log.TO_THE_END))
    except (ValueError, OverflowError) as e:
        raise Invalid(f"{text!r} is not an amount; use the form 0.50") from e
