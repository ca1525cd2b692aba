"""Every fact a log can hold.

Stored kinds and fields are for ever: kinds and fields with defaults may be added, none renamed or
reused. `docs/events.md` describes the format to outsiders.
"""

from typing import Literal

import msgspec

from holdfast.model.message import Content, Outcome, Part

Source = Literal["chat", "run", "api", "gateway", "cron", "batch", "library", "import"]
EndReason = Literal[
    "cli_close",
    "session_reset",
    "idle",
    "cron_complete",
    "batch_complete",
    "compression",
    "reaped",
    "recovered",
    "user",
    "error",
]
TurnOutcome = Literal["done", "failed", "interrupted", "cancelled"]


class _Fact(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    pass


class Usage(_Fact, frozen=True):
    """What the provider counted. `cost` is in US dollars where it is known."""

    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None


class SessionOpened(_Fact, frozen=True):
    source: Source
    channel: str | None = None
    model: str = ""
    title: str | None = None
    system: str | None = None
    workdir: str | None = None
    side_of: str | None = None


class UserSaid(_Fact, frozen=True):
    """`input_id` is the id under which words were admitted that then joined a turn already running."""

    turn_id: str
    parts: tuple[Content, ...]
    name: str = ""
    input_id: str = ""


class ModelSaid(_Fact, frozen=True):
    """A finished reply, or with `partial` what had been streamed when it was cut off."""

    turn_id: str
    parts: tuple[Part, ...]
    model: str = ""
    finish: str = ""
    usage: Usage = Usage()
    partial: bool = False


class ToolStarted(_Fact, frozen=True):
    """Committed before the tool acts, so that a crash in mid-act can be seen afterwards."""

    turn_id: str
    call_id: str
    name: str
    attempt: int = 1


class ToolEnded(_Fact, frozen=True):
    turn_id: str
    call_id: str
    outcome: Outcome
    parts: tuple[Content, ...] = ()
    name: str = ""
    millis: int = 0


class Offer(_Fact, frozen=True):
    """A tool of the client's: the model may call it, the client runs it. `parameters` is a JSON schema, as text."""

    name: str
    description: str = ""
    parameters: str = "{}"


class Terms(_Fact, frozen=True):
    """What a turn was asked for under, where that is not what the session has anyway."""

    model: str = ""
    system: str | None = None
    tools: tuple[Offer, ...] = ()
    use_tools: bool = True
    our_tools: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    options: dict[str, str] = {}
    """Further parameters of the request that only some providers know, each value as JSON text."""
    instructions: str | None = None
    """What stands before the system text, for this turn alone."""
    echo: dict[str, str] = {}
    """What a client of the Responses API is told again of its request, each value as JSON text."""


class TurnStarted(_Fact, frozen=True):
    turn_id: str
    worker_id: str = ""
    key: str = ""
    terms: Terms = Terms()


class TurnEnded(_Fact, frozen=True):
    turn_id: str
    outcome: TurnOutcome
    reason: str = ""
    code: str = ""
    usage: Usage = Usage()
    awaiting: tuple[str, ...] = ()
    """Calls that the client is to run; their results come with the next turn."""


class ReplyRestarted(_Fact, frozen=True):
    """The model was asked anew after a part of its reply had been shown as safe. That part is void."""

    turn_id: str
    text: str
    reason: str = ""


class InputDropped(_Fact, frozen=True):
    """Words that waited were taken back before their turn began."""

    turn_id: str
    parts: tuple[Content, ...] = ()
    terms: Terms = Terms()


class ResponseDeleted(_Fact, frozen=True):
    """A client no longer wants the turn to be found by the id of its response; the turn stays."""

    turn_id: str


class Compacted(_Fact, frozen=True):
    """Raises the epoch: the context now begins with the pinned messages and the summary of what came up to `upto_seq`.

    Results of tools from there up to `thinned_upto` are shown with at most `thinned_to` characters each.
    `refused_tokens` is the size, as we count, at which the provider had refused the context.
    """

    epoch: int
    upto_seq: int
    summary: str
    how: str
    pinned: tuple[int, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    turn_id: str = ""
    thinned_upto: int = 0
    thinned_to: int = 0
    model: str = ""
    chunks: int = 0
    about: str = ""
    usage: Usage = Usage()
    refused_tokens: int = 0
    reason: str = ""
    """Why no model, or not the first one, wrote the summary."""


class CompactionFailed(_Fact, frozen=True):
    """Nothing was changed. `tokens` is how large the context is."""

    reason: str
    code: str = ""
    upto_seq: int = 0
    turn_id: str = ""
    tokens: int = 0
    refused_tokens: int = 0
    usage: Usage = Usage()


class CompactionUndone(_Fact, frozen=True):
    epoch: int


class Rewound(_Fact, frozen=True):
    """Takes back what was said after `to_seq`: it stays in the log and no longer counts."""

    to_seq: int
    why: Literal["undo", "retry"] = "undo"


class Titled(_Fact, frozen=True):
    title: str
    by: Literal["user", "model", "import"] = "user"


class ModelChanged(_Fact, frozen=True):
    model: str


class Forked(_Fact, frozen=True):
    """Ends the part that a fork shares with its parent; all before it is the parent's, hashes included."""

    parent_id: str
    at_seq: int
    at_hash: str
    source: Source | None = None
    channel: str | None = None


class Ended(_Fact, frozen=True):
    """`last_sign_at` is when the session last showed life, if that is not the time of this event."""

    reason: EndReason
    detail: str = ""
    last_sign_at: int | None = None


class Reopened(_Fact, frozen=True):
    """`by_person` also forgives what recovery has tried so far."""

    reason: str = ""
    by_person: bool = False


class Renewed(_Fact, frozen=True):
    """This session took the place of another in its channel. `notice` is what the person is told; `processes` still run."""

    previous_id: str
    rule: Literal["idle", "daily", "new"]
    reason: str = ""
    notice: str = ""
    processes: tuple[str, ...] = ()


class ResetSkipped(_Fact, frozen=True):
    """A reset was due and did not take place. Written once for each change of the reason."""

    reason: str
    processes: tuple[str, ...] = ()


class ProcessStarted(_Fact, frozen=True):
    """Committed before the process is started, so that a crash in between can be seen afterwards."""

    process_id: str
    command: str
    pid: int = 0
    workdir: str = ""


class ProcessEnded(_Fact, frozen=True):
    """`exit_code` is negative for a signal, and null if nobody can know it. `tail` is the end of its output."""

    process_id: str
    reason: str
    exit_code: int | None = None
    command: str = ""
    tail: str = ""


class ProcessExpired(_Fact, frozen=True):
    """A process runs past its time to live: it no longer holds back a reset."""

    process_id: str
    ttl_seconds: int = 0
    evidence: str = ""
    command: str = ""


class ProcessesLeft(_Fact, frozen=True):
    """What became of the processes that ran when a person began another session."""

    processes: tuple[str, ...]
    action: Literal["stop", "keep", "hand_over"]
    to: str = ""


class ProcessesReceived(_Fact, frozen=True):
    """Processes that were begun in another session belong to this one from here on."""

    processes: tuple[str, ...]
    origin: str


class Recovered(_Fact, frozen=True):
    """A worker that died or went left this session in mid-turn; `evidence` says how that was known."""

    turn_id: str
    attempt: int
    action: str
    evidence: str = ""
    worker_id: str = ""
    """Who took it up."""


class Quarantined(_Fact, frozen=True):
    """Recovery gave up: nothing runs in this session until a person reopens it."""

    reason: str
    turn_id: str = ""


class ApprovalAsked(_Fact, frozen=True):
    """A call waits for a person's word before it may act."""

    turn_id: str
    call_id: str
    question: str


class ApprovalAnswered(_Fact, frozen=True):
    turn_id: str
    call_id: str
    allowed: bool
    by: str = ""
    reason: str = ""


class Imported(_Fact, frozen=True):
    """Ends what was taken from elsewhere. `digest` stands for all that the source held then, so that it can be told
    whether it has only grown since; `usage` is what the source counted and its messages do not say.
    """

    format: str
    origin: str = ""
    messages: int = 0
    digest: str = ""
    usage: Usage = Usage()


class Pinned(_Fact, frozen=True):
    pass


class Unpinned(_Fact, frozen=True):
    pass


class MessagePinned(_Fact, frozen=True):
    """A message that stays in the context word for word, whatever is compacted."""

    seq: int


class MessageUnpinned(_Fact, frozen=True):
    seq: int


class Trashed(_Fact, frozen=True):
    reason: str = ""


class Restored(_Fact, frozen=True):
    pass


Event = (
    SessionOpened
    | UserSaid
    | ModelSaid
    | ToolStarted
    | ToolEnded
    | TurnStarted
    | TurnEnded
    | ReplyRestarted
    | InputDropped
    | ResponseDeleted
    | Compacted
    | CompactionFailed
    | CompactionUndone
    | Rewound
    | Titled
    | ModelChanged
    | Forked
    | Ended
    | Reopened
    | Renewed
    | ResetSkipped
    | ProcessStarted
    | ProcessEnded
    | ProcessExpired
    | ProcessesLeft
    | ProcessesReceived
    | Recovered
    | Quarantined
    | ApprovalAsked
    | ApprovalAnswered
    | Imported
    | Pinned
    | Unpinned
    | Trashed
    | Restored
    | MessagePinned
    | MessageUnpinned
)

KINDS: dict[str, type[Event]] = {
    "session_opened": SessionOpened,
    "user_said": UserSaid,
    "model_said": ModelSaid,
    "tool_started": ToolStarted,
    "tool_ended": ToolEnded,
    "turn_started": TurnStarted,
    "turn_ended": TurnEnded,
    "reply_restarted": ReplyRestarted,
    "input_dropped": InputDropped,
    "response_deleted": ResponseDeleted,
    "compacted": Compacted,
    "compaction_failed": CompactionFailed,
    "compaction_undone": CompactionUndone,
    "rewound": Rewound,
    "titled": Titled,
    "model_changed": ModelChanged,
    "forked": Forked,
    "ended": Ended,
    "reopened": Reopened,
    "renewed": Renewed,
    "reset_skipped": ResetSkipped,
    "process_started": ProcessStarted,
    "process_ended": ProcessEnded,
    "process_expired": ProcessExpired,
    "processes_left": ProcessesLeft,
    "processes_received": ProcessesReceived,
    "recovered": Recovered,
    "quarantined": Quarantined,
    "approval_asked": ApprovalAsked,
    "approval_answered": ApprovalAnswered,
    "imported": Imported,
    "pinned": Pinned,
    "unpinned": Unpinned,
    "trashed": Trashed,
    "restored": Restored,
    "message_pinned": MessagePinned,
    "message_unpinned": MessageUnpinned,
}
KIND_OF: dict[type[Event], str] = {cls: kind for kind, cls in KINDS.items()}

ANNOTATIONS = (
    Titled,
    Pinned,
    Unpinned,
    Restored,
    ApprovalAnswered,
    InputDropped,
    ResponseDeleted,
    MessagePinned,
    MessageUnpinned,
    ResetSkipped,
    ProcessStarted,
    ProcessEnded,
    ProcessExpired,
    ProcessesLeft,
    ProcessesReceived,
)
"""Facts about a session that are no part of a turn: anybody may add them, also while a worker holds the session."""
