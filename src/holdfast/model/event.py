"""All events that a log can contain.

Stored kinds and fields are permanent: kinds, and fields with defaults, may be added; none may be renamed or
reused. `docs/events.md` documents the format.
"""

from typing import Literal

import msgspec

from holdfast.model.approval import Proposal, Scope
from holdfast.model.message import Content, Outcome, Part, Role
from holdfast.model.mode import DEFAULT_MODE, Mode
from holdfast.model.plan import PlanItem

Source = Literal["chat", "run", "api", "gateway", "cron", "batch", "library", "import", "delegate"]
EndReason = Literal[
    "cli_close",
    "session_reset",
    "idle",
    "cron_complete",
    "batch_complete",
    "delegate_complete",
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
    """The provider's token counts. `cost` is in US dollars, if known."""

    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None
    unpriced: int = 0
    """In a sum: how many of its calls are not in `cost`, because theirs is unknown."""


class Delegation(_Fact, frozen=True):
    """Who delegated a task to a child session, and the limits of the child. Without `parent_id` the session is not a child."""

    parent_id: str = ""
    turn_id: str = ""
    """The parent's turn."""
    call_id: str = ""
    root_id: str = ""
    """The session at the top of the tree, whose user answers questions."""
    root_turn_id: str = ""
    root_source: str = ""
    requester: str = ""
    """Who asked for the turn of the root session."""
    depth: int = 0
    """1 for a child of an ordinary session, 2 for a child of that one, and so on."""
    background: bool = False
    tools: tuple[str, ...] | None = None
    """The tools that the child may use; null for all that its parent has."""
    max_steps: int = 0
    max_tokens: int = 0
    seconds: int = 0
    memory_owner: str = ""
    """Whose remembered facts the child may use; empty for nobody's."""


class SessionOpened(_Fact, frozen=True):
    source: Source
    channel: str | None = None
    model: str = ""
    title: str | None = None
    system: str | None = None
    workdir: str | None = None
    side_of: str | None = None
    terminal: str = ""
    """The terminal backend that was chosen for the session; empty for the configured one."""
    mode: Mode = DEFAULT_MODE
    """The permission mode."""
    delegation: Delegation = Delegation()
    """For a child session: the tool call that created it."""


class UserSaid(_Fact, frozen=True):
    """`input_id` is the id under which the input was queued, if it then joined a running turn."""

    turn_id: str
    parts: tuple[Content, ...]
    name: str = ""
    input_id: str = ""
    sender: str = ""
    """The sender's id: `platform:person`, or the API caller; empty for the local user."""
    shared: bool = False
    """Whether other people read the conversation: it is a group's, or the session belongs to another chat."""


class ModelSaid(_Fact, frozen=True):
    """A finished reply or, with `partial`, the part that was streamed before it was cut off."""

    turn_id: str
    parts: tuple[Part, ...]
    model: str = ""
    finish: str = ""
    usage: Usage = Usage()
    partial: bool = False
    called: str = ""
    """The model that was called, as `provider:name`."""
    reservation: str = ""
    """The reservation in the budget that this call has used, if there is a budget."""


class ToolStarted(_Fact, frozen=True):
    """Committed before the tool acts, so that recovery can detect a crash during the call."""

    turn_id: str
    call_id: str
    name: str
    attempt: int = 1


class ToolCheckpointed(_Fact, frozen=True):
    """How another worker can continue the call, as the tool wrote it; empty if it cannot any more."""

    turn_id: str
    call_id: str
    state: str = ""


class ToolEnded(_Fact, frozen=True):
    turn_id: str
    call_id: str
    outcome: Outcome
    parts: tuple[Content, ...] = ()
    name: str = ""
    millis: int = 0


class ClientTool(_Fact, frozen=True):
    """A client-side tool: the model may call it, the client runs it. `parameters` is a JSON schema, as text."""

    name: str
    description: str = ""
    parameters: str = "{}"
    strict: bool = False
    """Whether the provider should enforce the schema."""


class RequestOptions(_Fact, frozen=True):
    """The options of the request that started a turn, where they differ from the session's."""

    model: str = ""
    system: str | None = None
    tools: tuple[ClientTool, ...] = ()
    use_tools: bool = True
    our_tools: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    options: dict[str, str] = {}
    """Further request parameters that only some providers support, each value as JSON text."""
    instructions: str | None = None
    """Text to put before the system text, for this turn only."""
    echo: dict[str, str] = {}
    """Request fields that the Responses API returns to its client, each value as JSON text."""
    client: str = ""
    """The program that sent the request; empty for input that does not come from an API client."""
    max_tool_calls: int | None = None
    """How many calls of the server's own tools the turn may run."""
    metadata: dict[str, str] = {}
    """The client's own metadata of a Chat Completions request."""


class TurnStarted(_Fact, frozen=True):
    turn_id: str
    worker_id: str = ""
    key: str = ""
    terms: RequestOptions = RequestOptions()


class TurnEnded(_Fact, frozen=True):
    turn_id: str
    outcome: TurnOutcome
    reason: str = ""
    code: str = ""
    usage: Usage = Usage()
    awaiting: tuple[str, ...] = ()
    """Calls that the client must run; their results come with the next turn."""
    called: str = ""
    """The model that was asked last and did not finish its reply, as `provider:name`; empty if all replies are complete."""


class ReplyRestarted(_Fact, frozen=True):
    """The model was called again after part of its reply had been shown as durable. That part is discarded."""

    turn_id: str
    text: str
    reason: str = ""


class InputDropped(_Fact, frozen=True):
    """Queued input was withdrawn before its turn began."""

    turn_id: str
    parts: tuple[Content, ...] = ()
    terms: RequestOptions = RequestOptions()


class ResponseDeleted(_Fact, frozen=True):
    """A client deleted a response: its id no longer finds the turn. The turn stays in the log."""

    turn_id: str


class Compacted(_Fact, frozen=True):
    """Increases the epoch: the context now begins with the pinned messages and the summary of the events up to `upto_seq`.

    Tool results from there up to `thinned_upto` are truncated to `thinned_to` characters each.
    `refused_tokens` is the size, by our own count, at which the provider rejected the context.
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
    """Why some models could not write the summary."""
    plan: tuple[PlanItem, ...] = ()
    """The session's plan at `upto_seq`; it is shown after the summary."""
    goal: str = ""
    """The session's goal at this time; it is shown after the summary."""
    mode: Mode = DEFAULT_MODE
    """The permission mode at this time. The model is told again, because the summary replaces what it was told."""
    recorded: bool = False
    """Whether `model_called` events record its usage, each call with its own."""


class CompactionFailed(_Fact, frozen=True):
    """Nothing was changed. `tokens` is the size of the context."""

    reason: str
    code: str = ""
    upto_seq: int = 0
    turn_id: str = ""
    tokens: int = 0
    refused_tokens: int = 0
    usage: Usage = Usage()
    recorded: bool = False


class ModelCalled(_Fact, frozen=True):
    """A call of a model beside the conversation: for a summary, a title, or an MCP server."""

    purpose: str
    model: str = ""
    usage: Usage = Usage()
    turn_id: str = ""
    reservation: str = ""


class BudgetRaised(_Fact, frozen=True):
    """A person allowed this session to spend more, in US dollars."""

    amount: float
    by: str = ""


class CompactionUndone(_Fact, frozen=True):
    epoch: int


class Rewound(_Fact, frozen=True):
    """Undoes everything after `to_seq`: it stays in the log, but leaves the context."""

    to_seq: int
    why: Literal["undo", "retry"] = "undo"


class FilesRestored(_Fact, frozen=True):
    """Files get the content that they had after `to_seq`. Committed before the first of them is touched."""

    to_seq: int
    files: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """Files that are left as they are, each with the reason."""
    conversation: bool = False
    """Whether the conversation was taken back to the same point."""
    by: str = ""


class Titled(_Fact, frozen=True):
    title: str
    by: Literal["user", "model", "import"] = "user"


class ModelChanged(_Fact, frozen=True):
    model: str


class ModeChanged(_Fact, frozen=True):
    """The permission mode is different from here on. It holds for every call that has not started yet."""

    mode: Mode
    previous: Mode
    by: str = ""
    """Who changed it."""


class SystemChanged(_Fact, frozen=True):
    """The client's system text changes from here on. An empty text means the built-in one."""

    system: str = ""
    sha256: str = ""


InstructionPart = Literal["system", "rules", "skills", "memory", "environment"]


class InstructionSource(_Fact, frozen=True):
    """A file or fact that a part of the instructions was built from. `sha256` is that of its whole content."""

    path: str
    sha256: str = ""
    size: int = 0
    """Bytes."""
    start: int = 0
    """Where it begins in the text of the part, in characters."""
    shown: int = 0
    """How many characters of it are in the text of the part, from `start` on."""
    cut: bool = False
    """Whether that is only its beginning."""
    refused: str = ""
    """Why it cannot be used now. The text that was recorded before is then kept, if there is any."""


class InstructionsLoaded(_Fact, frozen=True):
    """A part of the system text, from this turn on: committed before the model is called with it.

    It replaces the part recorded before. An empty text means that the part is left out.
    """

    turn_id: str
    part: InstructionPart
    text: str = ""
    sha256: str = ""
    """Of `text`."""
    sources: tuple[InstructionSource, ...] = ()
    notices: tuple[str, ...] = ()
    """What a person is told: what was loaded, changed, cut or refused."""


class FactRemembered(_Fact, frozen=True):
    """A call has saved a fact for later sessions, in the same commit. The text is in the call's arguments."""

    turn_id: str
    call_id: str
    scope: str = "user"
    replaces: int = 0
    """The number of the fact that it corrects; 0 for a new one."""
    sources: tuple[str, ...] = ()
    """Tools whose results, and other content from outside, were in the context."""


class InputRefused(_Fact, frozen=True):
    """The provider refused new input because of its content: the messages stay in the log and leave the context.

    A user's message is left out. A tool result is replaced by a notice, because each call needs a result.
    """

    turn_id: str
    seqs: tuple[int, ...]
    reason: str = ""
    code: str = ""


class Forked(_Fact, frozen=True):
    """Ends the part that a fork shares with its parent: all events before it are the parent's, including their hashes."""

    parent_id: str
    at_seq: int
    at_hash: str
    source: Source | None = None
    channel: str | None = None
    mode: Mode | None = None
    """The permission mode of the fork, if it is not that of the shared part."""


class Ended(_Fact, frozen=True):
    """`last_sign_at` is the session's last sign of life, if that differs from the time of this event."""

    reason: EndReason
    detail: str = ""
    last_sign_at: int | None = None


class Reopened(_Fact, frozen=True):
    """`by_person` also resets the count of recovery attempts."""

    reason: str = ""
    by_person: bool = False


class Renewed(_Fact, frozen=True):
    """This session replaced another in its channel. `notice` goes to the person; `processes` are still running."""

    previous_id: str
    rule: Literal["idle", "daily", "new"]
    reason: str = ""
    notice: str = ""
    processes: tuple[str, ...] = ()


class ResetSkipped(_Fact, frozen=True):
    """A reset was due but skipped. Written once per change of the reason."""

    reason: str
    processes: tuple[str, ...] = ()


class ProcessStarted(_Fact, frozen=True):
    """Committed before the process starts, so that a crash in between can be detected."""

    process_id: str
    command: str
    pid: int = 0
    workdir: str = ""


class ProcessEnded(_Fact, frozen=True):
    """`exit_code` is negative for a signal, and null if unknown. `tail` is the end of its output."""

    process_id: str
    reason: str
    exit_code: int | None = None
    command: str = ""
    tail: str = ""


class ProcessExpired(_Fact, frozen=True):
    """A process has exceeded its time to live: it no longer blocks a reset."""

    process_id: str
    ttl_seconds: int = 0
    evidence: str = ""
    command: str = ""


class ProcessesLeft(_Fact, frozen=True):
    """What a person chose for the running processes when a new session replaced this one."""

    processes: tuple[str, ...]
    action: Literal["stop", "keep", "hand_over"]
    to: str = ""


class ProcessesReceived(_Fact, frozen=True):
    """Processes of another session belong to this one from here on."""

    processes: tuple[str, ...]
    origin: str


class ChildStarted(_Fact, frozen=True):
    """A tool call delegated a task to a child session, which was created in the same transaction."""

    turn_id: str
    call_id: str
    child_id: str
    title: str = ""
    background: bool = False


class ChildEnded(_Fact, frozen=True):
    """The completion of a child whose result no tool call returns: it ran in the background, or its call was cut off."""

    child_id: str
    call_id: str
    outcome: TurnOutcome
    title: str = ""
    reason: str = ""
    text: str = ""
    """The child's last reply."""


GoalDecision = Literal["done", "continue", "stuck", "failed"]
GoalOutcome = Literal["done", "expired", "cleared"]


class GoalSet(_Fact, frozen=True):
    """The session works towards a goal from here on: after each turn a check decides whether it continues.

    A goal that was set before is replaced.
    """

    goal_id: str
    text: str
    deadline_at: int
    """When the goal expires, in microseconds since 1970. It is never continued after that."""
    max_turns: int
    max_cost: int | None = None
    """What calls of models may cost for the goal, in nano-dollars."""
    cost_before: int = 0
    """What the session had cost before, in nano-dollars."""
    by: str = ""


class GoalChecked(_Fact, frozen=True):
    """A model has judged the goal after a turn. With `continue`, this event is what the model gets to continue.

    `failed` means that the check itself failed, and is tried again.
    """

    goal_id: str
    after_turn: str
    """The turn after which the goal was checked; empty if none had ended."""
    decision: GoalDecision
    reason: str = ""
    evidence: str = ""
    """What the decision is based on, in the words of the model that checked."""
    model: str = ""
    turns: int = 0
    """How many turns the goal had taken."""
    cost: float | None = None
    """What it had cost, in US dollars."""
    attempt: int = 1
    text: str = ""
    """The goal, if the session continues with it."""


class GoalPaused(_Fact, frozen=True):
    """The goal is not continued until a person resumes it."""

    goal_id: str
    reason: str = ""
    by: str = ""
    """Who paused it; empty if it was a limit or the check."""


class GoalResumed(_Fact, frozen=True):
    """A person resumed the goal: it may take as many turns and cost as much as at first. Its deadline stays."""

    goal_id: str
    cost_before: int = 0
    """What the session had cost before, in nano-dollars."""
    by: str = ""


class GoalEnded(_Fact, frozen=True):
    """The goal was reached, has expired, or a person cleared or replaced it."""

    goal_id: str
    outcome: GoalOutcome
    reason: str = ""
    by: str = ""


class ContainerCreated(_Fact, frozen=True):
    """The container of the session's terminal; committed before the first command runs in it."""

    container_id: str
    name: str
    image: str
    engine: str
    settings_hash: str
    host: str = ""


class ContainerRestarted(_Fact, frozen=True):
    """The container had stopped and was started again: its programs, and its files in memory, are gone."""

    container_id: str
    reason: str


class ContainerLost(_Fact, frozen=True):
    """The container no longer exists or cannot be used, and what was only in it is gone."""

    container_id: str
    reason: str


class ContainerRemoved(_Fact, frozen=True):
    """Holdfast removed the container, because the session no longer needs it."""

    container_id: str
    reason: str


class Recovered(_Fact, frozen=True):
    """A worker died or left during a turn, and another recovered the turn; `evidence` says how this was detected."""

    turn_id: str
    attempt: int
    action: str
    evidence: str = ""
    worker_id: str = ""
    """The worker that recovered it."""
    suspect: bool = False
    """Whether the turn was active in the dead worker's process and so could have caused the death."""
    isolated: bool = False
    """Whether this replay runs its tools only while no other suspect does, so that a death in it is proof."""


class Quarantined(_Fact, frozen=True):
    """A turn was stopped for good because it repeatedly crashed its worker; the session accepts new messages."""

    reason: str
    turn_id: str = ""


class ApprovalAsked(_Fact, frozen=True):
    """A tool call waits for a person's approval."""

    turn_id: str
    call_id: str
    question: str
    """The question; for a long command or diff only its beginning, with the number of lines that follow."""
    question_id: str = ""
    proposal: Proposal = Proposal()
    """Everything that an approval would run."""


class ApprovalAnswered(_Fact, frozen=True):
    turn_id: str
    call_id: str
    allowed: bool
    by: str = ""
    reason: str = ""
    scope: Scope = "once"
    rule_id: str = ""
    """The rule that the answer created."""
    content: str = ""
    """The values of a form, as JSON text."""


class ApprovalRuleApplied(_Fact, frozen=True):
    """A call that needs approval was allowed without a question, because of an approval rule."""

    turn_id: str
    call_id: str
    rule_id: str
    by: str = ""
    """Who created the rule."""
    proposal: Proposal = Proposal()


class Imported(_Fact, frozen=True):
    """Ends the imported events. `digest` identifies the content of the source at that time, so that a source that has only
    grown since can be told from one that was changed; `usage` is what the source recorded in addition to its messages.
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
    """Compaction keeps this message in the context verbatim."""

    seq: int


class MessageUnpinned(_Fact, frozen=True):
    seq: int


class MessageRemoved(_Fact, frozen=True):
    """A client removed this message from its conversation: it stays in the log and leaves the context."""

    seq: int


class MetadataChanged(_Fact, frozen=True):
    """The client's own metadata of the session, as a whole."""

    metadata: dict[str, str] = {}


class PlanChanged(_Fact, frozen=True):
    """The model replaced the session's plan; without items there is none any more."""

    turn_id: str
    call_id: str
    items: tuple[PlanItem, ...] = ()


class ItemAdded(_Fact, frozen=True):
    """An item of another agent framework, whose session layer Holdfast is: a message, a tool call, a state or a checkpoint.

    `item` is the framework's own JSON, as text, with every field that the framework wrote.
    """

    adapter: str
    item: str
    role: Role | None = None
    """Who said it; None if it is not a message."""
    key: str = ""
    """The item's own id in its framework. A session holds each key once."""
    text: str = ""
    """The readable text, if it cannot be read from the item."""


class Trashed(_Fact, frozen=True):
    reason: str = ""


class Restored(_Fact, frozen=True):
    pass


Event = (
    SessionOpened
    | UserSaid
    | ModelSaid
    | ToolStarted
    | ToolCheckpointed
    | ToolEnded
    | TurnStarted
    | TurnEnded
    | ReplyRestarted
    | InputDropped
    | ResponseDeleted
    | Compacted
    | CompactionFailed
    | ModelCalled
    | BudgetRaised
    | CompactionUndone
    | Rewound
    | FilesRestored
    | Titled
    | ModelChanged
    | ModeChanged
    | SystemChanged
    | InstructionsLoaded
    | FactRemembered
    | InputRefused
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
    | ChildStarted
    | ChildEnded
    | GoalSet
    | GoalChecked
    | GoalPaused
    | GoalResumed
    | GoalEnded
    | ContainerCreated
    | ContainerRestarted
    | ContainerLost
    | ContainerRemoved
    | Recovered
    | Quarantined
    | ApprovalAsked
    | ApprovalAnswered
    | ApprovalRuleApplied
    | Imported
    | Pinned
    | Unpinned
    | Trashed
    | Restored
    | MessagePinned
    | MessageUnpinned
    | MessageRemoved
    | MetadataChanged
    | PlanChanged
    | ItemAdded
)

KINDS: dict[str, type[Event]] = {
    "session_opened": SessionOpened,
    "user_said": UserSaid,
    "model_said": ModelSaid,
    "tool_started": ToolStarted,
    "tool_checkpointed": ToolCheckpointed,
    "tool_ended": ToolEnded,
    "turn_started": TurnStarted,
    "turn_ended": TurnEnded,
    "reply_restarted": ReplyRestarted,
    "input_dropped": InputDropped,
    "response_deleted": ResponseDeleted,
    "compacted": Compacted,
    "compaction_failed": CompactionFailed,
    "model_called": ModelCalled,
    "budget_raised": BudgetRaised,
    "compaction_undone": CompactionUndone,
    "rewound": Rewound,
    "files_restored": FilesRestored,
    "titled": Titled,
    "model_changed": ModelChanged,
    "mode_changed": ModeChanged,
    "system_changed": SystemChanged,
    "instructions_loaded": InstructionsLoaded,
    "fact_remembered": FactRemembered,
    "input_refused": InputRefused,
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
    "child_started": ChildStarted,
    "child_ended": ChildEnded,
    "goal_set": GoalSet,
    "goal_checked": GoalChecked,
    "goal_paused": GoalPaused,
    "goal_resumed": GoalResumed,
    "goal_ended": GoalEnded,
    "container_created": ContainerCreated,
    "container_restarted": ContainerRestarted,
    "container_lost": ContainerLost,
    "container_removed": ContainerRemoved,
    "recovered": Recovered,
    "quarantined": Quarantined,
    "approval_asked": ApprovalAsked,
    "approval_answered": ApprovalAnswered,
    "approval_rule_applied": ApprovalRuleApplied,
    "imported": Imported,
    "pinned": Pinned,
    "unpinned": Unpinned,
    "trashed": Trashed,
    "restored": Restored,
    "message_pinned": MessagePinned,
    "message_unpinned": MessageUnpinned,
    "message_removed": MessageRemoved,
    "metadata_changed": MetadataChanged,
    "plan_changed": PlanChanged,
    "item_added": ItemAdded,
}
KIND_OF: dict[type[Event], str] = {cls: kind for kind, cls in KINDS.items()}

ANNOTATIONS = (
    Titled,
    ModeChanged,
    ModelCalled,
    BudgetRaised,
    Pinned,
    Unpinned,
    Restored,
    ApprovalAnswered,
    InputDropped,
    ResponseDeleted,
    MessagePinned,
    MessageUnpinned,
    MetadataChanged,
    ResetSkipped,
    ProcessStarted,
    ProcessEnded,
    ProcessExpired,
    ProcessesLeft,
    ProcessesReceived,
    ChildEnded,
    GoalSet,
    GoalPaused,
    GoalResumed,
    GoalEnded,
    ContainerCreated,
    ContainerRestarted,
    ContainerLost,
    ContainerRemoved,
)
"""Events that are not part of a turn: any process may add them, even while a worker holds the session."""
