"""What the native routes answer with, as types. The OpenAPI document is made of them, and tests hold the answers against them.

The fields are those that `holdfast … --json` prints, described in `docs/commands.md`.
"""

from typing import Any, Literal

import msgspec

from holdfast.model.event import Source
from holdfast.model.session import State

Json = dict[str, Any]


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers hold these fields and no others."""


# Sessions.


class Session(Form, frozen=True):
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


class Sessions(Form, frozen=True):
    sessions: list[Session]
    next: str | None


class LoggedMessage(Form, frozen=True):
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


class Messages(Form, frozen=True):
    session_id: str
    messages: list[LoggedMessage]
    next: int | None


class Event(Form, frozen=True):
    seq: int
    kind: str
    at: str
    hash: str
    body: Json


class Events(Form, frozen=True):
    session_id: str
    events: list[Event]
    seq: int
    next: int | None


class Interrupted(Form, frozen=True):
    session_id: str
    interrupted: bool


# Turns and questions.


class Begun(Form, frozen=True):
    session_id: str
    turn_id: str
    state: Literal["running", "queued", "repeated"]
    seq: int


class Turn(Form, frozen=True):
    id: str
    session_id: str
    state: Literal["queued", "running", "open", "done", "failed", "interrupted", "cancelled", "joined"]
    joined: str | None
    started_at: str | None
    ended_at: str | None
    text: str
    code: str
    reason: str
    awaiting: list[str]
    usage: Json | None
    messages: list[LoggedMessage]


class Approval(Form, frozen=True):
    session_id: str
    turn_id: str
    call_id: str
    question: str
    asked_at: str
    allowed: int | None
    answered_by: str | None


class Approvals(Form, frozen=True):
    approvals: list[Approval]


class Answered(Form, frozen=True):
    session_id: str
    turn_id: str
    call_id: str
    allowed: bool


class Compaction(Form, frozen=True):
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


class Compacted(msgspec.Struct, frozen=True):
    """What came of it; beside these the fields of the event."""

    session_id: str
    epoch: int
    compacted: bool = False
    undone: bool = False


class Compactions(Form, frozen=True):
    session_id: str
    epoch: int
    context: Json
    compactions: list[Compaction]


# The whole store.


class Hit(Form, frozen=True):
    session_id: str
    title: str | None
    seq: int
    at: str
    kind: str
    snippet: str
    marks: list[list[int]]


class Hits(Form, frozen=True):
    query: str
    hits: list[Hit]
    next: int | None


class Worker(Form, frozen=True):
    id: str
    kind: str
    host: str
    boot: str
    pid: int
    process_started: str
    version: str
    started_at: str
    beat: int
    beat_at: str
    stalled_since: str | None
    ended_at: str | None
    end_reason: str | None
    cleared_at: str | None
    leaving_at: str | None
    state: str
    evidence: str


class Workers(Form, frozen=True):
    workers: list[Worker]


class Process(Form, frozen=True):
    id: str
    session_id: str
    command: str
    workdir: str
    host: str
    pid: int | None
    state: str
    evidence: str
    blocks_reset: bool
    expired: bool
    started_at: str
    last_work_at: str
    last_work: str
    ttl_seconds: int
    members: int
    listens: list[Any]
    cpu_seconds: float
    output_bytes: int
    ended_at: str | None
    exit_code: int | None
    end_reason: str | None


class Processes(Form, frozen=True):
    processes: list[Process]


class Output(Form, frozen=True):
    process: Process
    output: str
    start: int
    end: int
    bytes: int
    bytes_dropped: int


class Deed(Form, frozen=True):
    what: str
    worker_id: str
    session_id: str
    evidence: str


class Idle(Form, frozen=True):
    idle: bool
    why: list[str]
    wake_at: str | None


class Sweep(Form, frozen=True):
    workers: list[Worker]
    done: list[Deed]


class Active(Form, frozen=True):
    id: str
    title: str | None
    source: str
    state: State
    worker_id: str | None
    last_heartbeat_at: str | None
    last_event_at: str
    doing: str


class Counts(Form, frozen=True):
    total: int
    open: int
    owned: int
    waiting: int
    quarantined: int
    leaked: int
    ended: int
    by_reason: dict[str, int]
    by_source: dict[str, int]


class Activity(Form, frozen=True):
    at: str
    workers: list[Worker]
    sessions: list[Active]
    counts: Counts


class Why(Form, frozen=True):
    session: Session
    owner: Worker | None
    doing: str
    decisions: list[Json]
    context: Json | None
    attempts: int
    questions: list[Approval]
    next: str
    processes: list[Process]
    reset: str


# For clients of Hermes.


class HermesSession(Form, frozen=True, rename={"lineage_root_id": "_lineage_root_id"}):
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


class HermesSessions(Form, frozen=True):
    object: Literal["list"]
    data: list[HermesSession]
    sessions: list[HermesSession]
    limit: int
    offset: int
    has_more: bool


class HermesOne(HermesSession, frozen=True, kw_only=True):
    object: Literal["hermes.session"]
    session: HermesSession


class Explained(Form, frozen=True):
    """What goes wrong, in the shape that OpenAI gave it."""

    message: str
    type: str
    code: str | None
    param: str | None


class Error(Form, frozen=True):
    error: Explained
