"""Types of the native routes' responses that no command prints; `interop.documents` has the others.

The OpenAPI document is built from them, and tests check responses against them.
"""

from typing import Literal

from holdfast.interop.documents.explanation import ContextItem
from holdfast.interop.documents.processes import ProcessItem
from holdfast.interop.documents.questions import ApprovalItem
from holdfast.interop.documents.sessions import EventItem, GoalItem, MessageItem
from holdfast.interop.documents.workers import WorkerItem
from holdfast.interop.serialization import Document, Json
from holdfast.model.session import State

TurnState = Literal["queued", "running", "open", "done", "failed", "interrupted", "cancelled", "joined"]


# Sessions.


class MessageListResponse(Document, frozen=True):
    session_id: str
    messages: list[MessageItem]
    next: int | None


class EventListResponse(Document, frozen=True):
    session_id: str
    events: list[EventItem]
    seq: int
    next: int | None


class InterruptResponse(Document, frozen=True):
    session_id: str
    interrupted: bool


# Turns and questions.


class TurnAccepted(Document, frozen=True):
    session_id: str
    turn_id: str
    state: Literal["running", "queued", "repeated"]
    seq: int


class TurnResponse(Document, frozen=True):
    id: str
    session_id: str
    state: TurnState
    joined: str | None
    started_at: str | None
    ended_at: str | None
    text: str
    code: str
    reason: str
    awaiting: list[str]
    usage: Json | None
    messages: list[MessageItem]


class GoalResponse(Document, frozen=True):
    session_id: str
    goal: GoalItem | None
    """Null only right after a first goal was set while a turn runs: the goal begins with the turn `turn_id`."""
    turn_id: str | None
    """The turn that starts the work, if this request set the goal."""
    queued: bool
    """Whether that turn waits for another one to end."""


class ApprovalListResponse(Document, frozen=True):
    approvals: list[ApprovalItem]


class AnswerResponse(Document, frozen=True):
    session_id: str
    turn_id: str
    call_id: str
    allowed: bool


class CompactionItem(Document, frozen=True):
    seq: int
    at: str
    epoch: int
    from_seq: int
    upto_seq: int
    how: str
    model: str
    tokens_before: int
    tokens_after: int
    pinned: list[int]
    summary: str
    undone: bool


class CompactionListResponse(Document, frozen=True):
    session_id: str
    epoch: int
    context: ContextItem
    compactions: list[CompactionItem]


# The whole store.


class ProcessOutputResponse(Document, frozen=True):
    process: ProcessItem
    output: str
    start: int
    end: int
    bytes: int
    bytes_dropped: int


class IdleResponse(Document, frozen=True):
    idle: bool
    why: list[str]
    wake_at: str | None


class ActiveSessionItem(Document, frozen=True):
    id: str
    title: str | None
    source: str
    state: State
    worker_id: str | None
    last_heartbeat_at: str | None
    last_event_at: str
    doing: str


class SessionCounts(Document, frozen=True):
    total: int
    owned: int
    waiting: int
    quarantined: int
    leaked: int
    ended: int
    by_reason: dict[str, int]
    by_source: dict[str, int]
    open: int


class ActivityResponse(Document, frozen=True):
    at: str
    workers: list[WorkerItem]
    sessions: list[ActiveSessionItem]
    counts: SessionCounts


# For clients of Hermes.


class HermesSessionItem(Document, frozen=True, rename={"lineage_root_id": "_lineage_root_id"}):
    id: str
    source: str
    user_id: None
    model: str | None
    title: str | None
    started_at: float
    ended_at: float | None
    end_reason: str | None
    message_count: int
    input_tokens: int
    output_tokens: int
    parent_session_id: str | None
    lineage_root_id: str
    last_active: float
    is_active: bool
    preview: str


class HermesSessionList(Document, frozen=True):
    object: Literal["list"]
    data: list[HermesSessionItem]
    sessions: list[HermesSessionItem]
    limit: int
    offset: int
    has_more: bool


class HermesSessionResponse(HermesSessionItem, frozen=True, kw_only=True):
    object: Literal["hermes.session"]
    session: HermesSessionItem


class ErrorBody(Document, frozen=True):
    """An error in the shape of the OpenAI API."""

    message: str
    type: str
    code: str | None
    param: str | None


class ErrorResponse(Document, frozen=True):
    error: ErrorBody
