"""What the native routes take, in the query and in the body, as types: requests are read by them, and so is the OpenAPI document."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.model.event import Source
from holdfast.model.session import State

Seq = Annotated[int, Meta(ge=0, le=2**53)]
Line = Annotated[str, Meta(max_length=2000)]
Limit = Annotated[int, Meta(ge=1, le=1000)]


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may hold, in its query or its body. Anything else is refused by name."""


class Nothing(Asked, frozen=True):
    pass


class ListAsked(Asked, frozen=True):
    limit: Limit = 50
    cursor: Line | None = None
    source: Source | None = None
    state: State | None = None
    channel: Line | None = None
    model: Line | None = None
    pinned: bool | None = None
    trash: bool = False
    sides: bool = False


class NewSession(Asked, frozen=True):
    key: str | None = None
    title: Line | None = None
    model: Line | None = None
    system: str | None = None


class Change(Asked, frozen=True):
    title: Line | None = None
    model: Line | None = None
    pinned: bool | None = None


class ForkAsked(Asked, frozen=True):
    at: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    title: Line | None = None


class PageAsked(Asked, frozen=True):
    after: Seq = 0
    limit: Limit = 1000


class TurnAsked(Asked, frozen=True):
    input: str | list[dict[str, Any]]


class ApprovalsAsked(Asked, frozen=True):
    limit: Limit = 100


class Answer(Asked, frozen=True):
    allowed: bool
    reason: Line = ""
    turn_id: Line | None = None


class CompactAsked(Asked, frozen=True):
    about: Line = ""
    undo: bool = False


class SearchAsked(Asked, frozen=True):
    q: Line
    session: Line | None = None
    limit: Limit = 20
    before: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class WorkersAsked(Asked, frozen=True):
    all: bool = False


class ProcessesAsked(Asked, frozen=True):
    ended: bool = False


class OutputAsked(Asked, frozen=True):
    start: Seq | None = None
    limit: Annotated[int, Meta(ge=1, le=2**20)] = 65_536


class ActivityAsked(Asked, frozen=True):
    limit: Limit = 100


class HermesAsked(Asked, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0
    source: Line | None = None
