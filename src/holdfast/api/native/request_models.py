"""Types of the queries and bodies of the native routes, used to parse requests and to build the OpenAPI document."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.engine.goals.actions import MOST_HOURS, MOST_TURNS
from holdfast.interop.documents.search import SearchOrder, SearchRole
from holdfast.model.approval import Match, Scope
from holdfast.model.event import Source
from holdfast.model.goal import TEXT_LENGTH
from holdfast.model.memory.fact import MemoryScope
from holdfast.model.memory.owner import LOCAL_OWNER
from holdfast.model.mode import Mode
from holdfast.model.price import HIGHEST_COST
from holdfast.model.session import State
from holdfast.settings import TerminalName

Seq = Annotated[int, Meta(ge=0, le=2**53)]
Line = Annotated[str, Meta(max_length=2000)]
FactText = Annotated[str, Meta(min_length=1, max_length=100_000)]
Name = Annotated[str, Meta(max_length=2000, pattern=r"^[^\x00-\x1f\ud800-\udfff]*$")]
Owner = Annotated[
    str, Meta(max_length=2000, pattern=r"^(local|[^\x00-\x1f:\ud800-\udfff]+:[^\x00-\x1f\ud800-\udfff]*)$")
]
Limit = Annotated[int, Meta(ge=1, le=1000)]


class RequestModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a query or a body. Unknown ones are rejected by name."""


class NoParameters(RequestModel, frozen=True):
    pass


class ListSessionsRequest(RequestModel, frozen=True):
    limit: Limit = 50
    cursor: Line | None = None
    source: Source | None = None
    state: State | None = None
    channel: Line | None = None
    model: Line | None = None
    pinned: bool | None = None
    trash: bool = False
    sides: bool = False
    children: bool = False


class NewSessionRequest(RequestModel, frozen=True):
    key: str | None = None
    title: Line | None = None
    model: Line | None = None
    system: str | None = None
    terminal: TerminalName | None = None
    mode: Mode | None = None


class ChangeSessionRequest(RequestModel, frozen=True):
    title: Line | None = None
    model: Line | None = None
    pinned: bool | None = None
    mode: Mode | None = None


class RewindRequest(RequestModel, frozen=True):
    """Where to go back to: the newest `turns`, the turn with event `to`, or `undo` of the last rewind of files."""

    turns: Annotated[int, Meta(ge=1)] = 1
    to: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    undo: bool = False
    what: Literal["both", "files", "conversation"] = "both"
    force: list[str] = []
    preview: bool = False


class ForkRequest(RequestModel, frozen=True):
    at: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    title: Line | None = None


class PageRequest(RequestModel, frozen=True):
    after: Seq = 0
    limit: Limit = 1000


class TurnRequest(RequestModel, frozen=True):
    input: str | list[dict[str, Any]]


class ShareRequest(RequestModel, frozen=True):
    days: Annotated[int, Meta(ge=1, le=365)] = 7


class ListApprovalsRequest(RequestModel, frozen=True):
    limit: Limit = 100


class AnswerRequest(RequestModel, frozen=True):
    allowed: bool
    reason: Line = ""
    turn_id: Line | None = None


class ListQuestionsRequest(RequestModel, frozen=True):
    limit: Limit = 100


class AnswerQuestionRequest(RequestModel, frozen=True):
    allowed: bool | None = None
    answer: Line | None = None
    scope: Scope = "once"
    match: Match = "exact"
    prefix: list[Line] = []
    reason: Line = ""
    content: dict[str, Any] | None = None


class ListRulesRequest(RequestModel, frozen=True):
    revoked: bool = False


class ListFactsRequest(RequestModel, frozen=True):
    q: Line = ""
    owner: Line | None = None
    scope: MemoryScope | None = None
    project: Line | None = None
    history: bool = False
    limit: Limit = 100
    cursor: Line | None = None


class NewFactRequest(RequestModel, frozen=True):
    text: FactText
    scope: MemoryScope = "user"
    owner: Owner = LOCAL_OWNER
    project: Name = ""


class CorrectFactRequest(RequestModel, frozen=True):
    text: FactText


class CompactRequest(RequestModel, frozen=True):
    about: Line = ""
    undo: bool = False


class UsageRequest(RequestModel, frozen=True, rename={"first": "from", "last": "to"}):
    first: Line | None = None
    last: Line | None = None
    by: Line = "day"


class RaiseBudgetRequest(RequestModel, frozen=True):
    amount: Annotated[float, Meta(gt=0, le=HIGHEST_COST)]


class GoalRequest(RequestModel, frozen=True):
    """A goal, and its limits where they differ from the settings."""

    text: Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH)]
    max_turns: Annotated[int, Meta(ge=1, le=MOST_TURNS)] | None = None
    max_hours: Annotated[float, Meta(gt=0, le=MOST_HOURS)] | None = None
    max_cost: Annotated[float, Meta(gt=0, le=HIGHEST_COST)] | None = None


class ChangeGoalRequest(RequestModel, frozen=True):
    state: Literal["active", "paused"]


class SearchRequest(RequestModel, frozen=True):
    q: Line
    session: Line | None = None
    limit: Limit = 20
    before: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    order: SearchOrder = "relevance"
    role: SearchRole | None = None
    tool: Line | None = None


class ListWorkersRequest(RequestModel, frozen=True):
    all: bool = False


class ListProcessesRequest(RequestModel, frozen=True):
    ended: bool = False


class ProcessOutputRequest(RequestModel, frozen=True):
    start: Seq | None = None
    limit: Annotated[int, Meta(ge=1, le=2**20)] = 65_536


class ActivityRequest(RequestModel, frozen=True):
    limit: Limit = 100


class HermesListRequest(RequestModel, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0
    source: Line | None = None
