"""Sessions, their messages and events, and search results."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self, cast

import msgspec

from holdfast.interop.serialization import Document, Json, format_time
from holdfast.model.entry import Entry
from holdfast.model.event import GoalDecision, Source
from holdfast.model.goal import Goal, GoalState
from holdfast.model.message import Message, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.mode import Mode
from holdfast.model.plan import PlanItem, StepStatus
from holdfast.model.price import to_dollars
from holdfast.model.session import Session, State
from holdfast.model.times import iso

if TYPE_CHECKING:
    from holdfast.store.repos.session_list import SessionPage
    from holdfast.store.search.index import SearchHit


class PlanItemResponse(Document, frozen=True):
    content: str
    status: StepStatus


class GoalItem(Document, frozen=True):
    """The goal of a session."""

    id: str
    text: str
    state: GoalState
    reason: str
    """Why it is in its state; while it is active, what the newest check said."""
    by: str
    set_at: str
    changed_at: str
    deadline_at: str
    turns: int
    """Turns since it was set or last resumed."""
    max_turns: int
    max_cost: float | None
    decision: GoalDecision | None
    """The result of the newest check."""

    @classmethod
    def from_goal(cls, goal: Goal) -> Self:
        return cls(
            id=goal.id,
            text=goal.text,
            state=goal.state,
            reason=goal.reason,
            by=goal.by,
            set_at=iso(goal.set_at),
            changed_at=iso(goal.changed_at),
            deadline_at=iso(goal.deadline_at),
            turns=goal.turns,
            max_turns=goal.max_turns,
            max_cost=None if goal.max_cost is None else to_dollars(goal.max_cost),
            decision=goal.decision,
        )


class SessionResponse(Document, frozen=True):
    id: str
    title: str | None
    source: Source
    channel: str | None
    model: str
    created_at: str
    updated_at: str
    ended_at: str | None
    end_reason: str | None
    state: State
    epoch: int
    seq: int
    hash: str
    message_count: int
    turn_count: int
    tokens_in: int
    tokens_out: int
    parent_id: str | None
    worker_id: str | None
    last_heartbeat_at: str | None
    preview: str
    side_of: str | None
    pinned: bool
    trashed_at: str | None
    mode: Mode
    delegated_by: str | None
    """For a child session: its parent, which is also its `parent_id`; null for a fork."""
    children: list[str]
    """The child sessions that it has delegated tasks to, oldest first."""
    goal_state: GoalState
    """The state of its newest goal; empty if it never had one."""

    @classmethod
    def from_session(cls, session: Session, children: Sequence[str] = ()) -> Self:
        summary = session.summary
        return cls(
            id=session.id,
            title=summary.title,
            source=cast("Source", summary.source),
            channel=summary.channel,
            model=summary.model,
            created_at=iso(summary.created_at),
            updated_at=iso(summary.updated_at),
            ended_at=format_time(summary.ended_at),
            end_reason=summary.end_reason,
            state=session.state,
            epoch=summary.epoch,
            seq=session.seq,
            hash=session.hash,
            message_count=summary.message_count,
            turn_count=summary.turn_count,
            tokens_in=summary.tokens_in,
            tokens_out=summary.tokens_out,
            parent_id=summary.parent_id,
            worker_id=session.worker_id,
            last_heartbeat_at=format_time(session.last_heartbeat_at),
            preview=summary.preview,
            side_of=summary.side_of,
            pinned=bool(summary.pinned),
            trashed_at=format_time(summary.trashed_at),
            mode=summary.mode,
            delegated_by=session.delegated_by,
            children=list(children),
            goal_state=summary.goal,
        )


class SessionDetailResponse(SessionResponse, frozen=True, kw_only=True):
    """One session, with its current plan and its newest goal."""

    plan: list[PlanItemResponse]
    goal: GoalItem | None

    @classmethod
    def describe(
        cls, session: Session, plan: Sequence[PlanItem], children: Sequence[str], goal: Goal | None = None
    ) -> Self:
        steps = [PlanItemResponse(item.content, item.status) for item in plan]
        return cls(
            **msgspec.structs.asdict(SessionResponse.from_session(session, children)),
            plan=steps,
            goal=None if goal is None else GoalItem.from_goal(goal),
        )


class SessionListResponse(Document, frozen=True):
    sessions: list[SessionResponse]
    next: str | None

    @classmethod
    def from_page(cls, page: "SessionPage", children: Mapping[str, Sequence[str]]) -> Self:
        """Build the list. `children` are those of each session that has any."""
        listed = [SessionResponse.from_session(one, children.get(one.id, ())) for one in page.sessions]
        return cls(listed, page.next)


class MessageItem(Document, frozen=True, omit_defaults=True):
    """A message. `content` is text, or the parts if some are not text; calls have OpenAI's format."""

    seq: int
    role: Literal["user", "assistant", "tool"]
    content: str | list[Json]
    tool_calls: list[Json]
    tool_call_id: str | None
    partial: bool
    at: str
    turn_id: str
    reasoning: str = ""
    outcome: str = ""

    @classmethod
    def from_message(cls, said: Message) -> Self:
        result = next((part for part in reversed(said.parts) if isinstance(part, ToolResult)), None)
        return cls(
            seq=said.seq,
            role=said.role,
            content=_content(said),
            tool_calls=[_call(call) for call in said.tool_calls],
            tool_call_id=None if result is None else result.call_id,
            partial=said.partial,
            at=iso(said.at),
            turn_id=said.turn_id,
            reasoning="".join(part.text for part in said.parts if isinstance(part, Reasoning)),
            outcome="" if result is None else result.outcome,
        )


def _content(said: Message) -> str | list[Json]:
    parts = [inner for part in said.parts for inner in (part.parts if isinstance(part, ToolResult) else (part,))]
    shown = [part for part in parts if not isinstance(part, Reasoning | ToolCall)]
    if all(isinstance(part, Text) for part in shown):
        return text_of(said.parts)
    return [msgspec.to_builtins(part) for part in shown]


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


class EventItem(Document, frozen=True):
    seq: int
    kind: str
    at: str
    hash: str
    body: Json

    @classmethod
    def from_entry(cls, entry: Entry) -> Self:
        return cls(entry.seq, entry.kind, iso(entry.at), entry.hash, msgspec.to_builtins(entry.event))


class SearchHitItem(Document, frozen=True):
    session_id: str
    title: str | None
    seq: int
    at: str
    kind: str
    snippet: str
    marks: list[list[int]]

    @classmethod
    def from_hit(cls, hit: "SearchHit", title: str | None) -> Self:
        marks = [list(mark) for mark in hit.marks]
        return cls(hit.session_id, title, hit.seq, iso(hit.at), hit.kind, hit.snippet, marks)
