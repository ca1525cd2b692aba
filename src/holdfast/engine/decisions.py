"""Says in words what an event has decided about its session, with the evidence. Pure."""

from collections.abc import Callable

import msgspec

from holdfast.engine.liveness.handover_question import asked_by
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRuleApplied,
    BudgetRaised,
    ChildEnded,
    ChildStarted,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    ContainerCreated,
    ContainerLost,
    ContainerRemoved,
    ContainerRestarted,
    Ended,
    Event,
    FactRemembered,
    FilesRestored,
    Forked,
    GoalChecked,
    GoalEnded,
    GoalPaused,
    GoalResumed,
    GoalSet,
    InputDropped,
    InputRefused,
    InstructionsLoaded,
    MessagePinned,
    MessageRemoved,
    MessageUnpinned,
    ModeChanged,
    ProcessEnded,
    ProcessesLeft,
    ProcessesReceived,
    ProcessExpired,
    Quarantined,
    Recovered,
    Renewed,
    Reopened,
    ReplyRestarted,
    ResetSkipped,
    ResponseDeleted,
    Restored,
    Rewound,
    SystemChanged,
    ToolEnded,
    Trashed,
    TurnEnded,
)
from holdfast.model.finding import summary as risks_of
from holdfast.model.price import HIGHEST_COST, format_money, to_nano
from holdfast.model.session import collapse_line
from holdfast.model.text import counted
from holdfast.model.turn import FORKED

Words = tuple[str, str]
"""What was decided, and the evidence."""


class Decision(msgspec.Struct, frozen=True):
    """A decision about the session, with its evidence."""

    seq: int
    at: int
    kind: str
    what: str
    evidence: str = ""


def decided(entry: Entry) -> Decision | None:
    """The decision that an event records, if any."""
    for describe in _SUBJECTS:
        words = describe(entry.event)
        if words is not None:
            return Decision(entry.seq, entry.at, entry.kind, *words)
    return None


def _about_session(event: Event) -> Words | None:
    match event:
        case Ended():
            return f"ended: {event.reason}", event.detail
        case Reopened():
            return "reopened", event.reason
        case Renewed():
            return f"it replaced {event.previous_id} ({event.rule})", event.reason
        case ResetSkipped():
            return "a reset was skipped", f"{event.reason} {', '.join(event.processes)}".strip()
        case Forked():
            return f"forked from {event.parent_id}", f"at event {event.at_seq}"
        case Trashed():
            return "moved to the trash", event.reason
        case Restored():
            return "restored from the trash", ""
        case BudgetRaised():
            raised = f"its budget was raised by {_money(event.amount)}"
            return raised, f"by {event.by}" if event.by else ""
        case _:
            return None


def _about_turn(event: Event) -> Words | None:
    match event:
        case Recovered():
            return _recovered(event), event.evidence
        case Quarantined():
            return f"turn {event.turn_id} was quarantined", event.reason
        case TurnEnded(outcome="done"):
            return None
        case TurnEnded(code=code) if code == FORKED:
            return "the fork starts in the middle of a turn", "the open calls are closed in the fork"
        case TurnEnded():
            return "a turn failed" if event.outcome == "failed" else f"a turn was {event.outcome}", event.reason
        case ToolEnded(outcome="unknown"):
            unknown = f"the outcome of {event.name or event.call_id} is unknown"
            return unknown, "its worker stopped before a result was recorded"
        case InputRefused():
            return f"the provider refused {counted(len(event.seqs), 'message')}; set aside", event.reason
        case InputDropped():
            return "queued input was withdrawn", f"it would have started {event.turn_id}"
        case ReplyRestarted():
            return "the model was called again in the middle of its reply", event.reason
        case ResponseDeleted():
            return f"the response of {event.turn_id} is no longer found by its id", "a client deleted it"
        case _:
            return None


def _about_context(event: Event) -> Words | None:
    match event:
        case Compacted():
            return f"the context was compacted ({event.how}, epoch {event.epoch})", _compacted(event)
        case CompactionFailed():
            return "a compaction failed", event.reason
        case CompactionUndone():
            return f"a compaction was undone, back to epoch {event.epoch}", ""
        case MessagePinned():
            return f"message {event.seq} was pinned", ""
        case MessageUnpinned():
            return f"message {event.seq} is no longer pinned", ""
        case MessageRemoved():
            return f"message {event.seq} left the context", "a client removed it from its conversation"
        case Rewound():
            return f"everything after event {event.to_seq} was undone", event.why
        case FilesRestored():
            skipped = f"; skipped: {'; '.join(event.skipped)}" if event.skipped else ""
            return f"{counted(len(event.files), 'file')} restored to event {event.to_seq}", f"by {event.by}{skipped}"
        case SystemChanged():
            return "the client's system prompt changed", collapse_line(event.system)[:200] or "the built-in one is used"
        case InstructionsLoaded() if event.notices:
            return f"loaded for the model: {event.part}", "; ".join(event.notices)
        case FactRemembered():
            return "a fact was saved for later sessions", _remembered(event)
        case _:
            return None


def _about_permission(event: Event) -> Words | None:
    match event:
        case ModeChanged():
            return f"the permission mode was changed from {event.previous} to {event.mode}", f"by {event.by}"
        case ApprovalAsked():
            risks = risks_of(event.proposal.findings) if event.proposal.findings else event.question
            return f"approval was requested for call {event.call_id}", risks
        case ApprovalAnswered():
            reason = f": {event.reason}" if event.reason else ""
            asked = "handover to another terminal" if asked_by(event) else f"call {event.call_id}"
            return f"{asked} was {'allowed' if event.allowed else 'denied'}", f"by {event.by}{reason}"
        case ApprovalRuleApplied():
            return f"call {event.call_id} was allowed by rule {event.rule_id}", f"which {event.by} made"
        case _:
            return None


def _about_processes(event: Event) -> Words | None:
    match event:
        case ProcessEnded():
            return f"process {event.process_id} ended: {event.reason}", event.command
        case ProcessExpired():
            return f"process {event.process_id} ran past its time to live", event.evidence
        case ProcessesLeft():
            return f"its processes were left: {event.action} {event.to}".rstrip(), ", ".join(event.processes)
        case ProcessesReceived():
            return f"processes of {event.origin} were handed over to it", ", ".join(event.processes)
        case ContainerCreated():
            created = f"container {event.container_id[:12]} was created for the terminal"
            return created, f"{event.image} by {event.engine}"
        case ContainerRestarted():
            return f"container {event.container_id[:12]} was started again", event.reason
        case ContainerLost():
            return f"container {event.container_id[:12]} was lost", event.reason
        case ContainerRemoved():
            return f"container {event.container_id[:12]} was removed", event.reason
        case _:
            return None


def _about_work(event: Event) -> Words | None:
    """Goals and delegated tasks."""
    match event:
        case GoalSet():
            return f"a goal was set{_by(event.by)}", collapse_line(event.text)
        case GoalChecked():
            return f"its goal was checked: {event.decision}", _checked(event)
        case GoalPaused():
            return f"its goal was paused{_by(event.by)}", event.reason
        case GoalResumed():
            return f"its goal was resumed{_by(event.by)}", ""
        case GoalEnded():
            return f"its goal ended: {event.outcome}{_by(event.by)}", event.reason
        case ChildStarted():
            how = "in the background" if event.background else f"call {event.call_id} waits for it"
            return f"a task was delegated to {event.child_id}", f"{how}: {event.title}"
        case ChildEnded():
            return f"sub-agent {event.child_id} has ended: {event.outcome}", event.reason or event.title
        case _:
            return None


_SUBJECTS: tuple[Callable[[Event], Words | None], ...] = (
    _about_session,
    _about_turn,
    _about_context,
    _about_permission,
    _about_processes,
    _about_work,
)


def _recovered(event: Recovered) -> str:
    """What was done with the turn of a dead worker."""
    suspect = ", suspected of causing the crash" if event.suspect else ""
    isolated = ", in isolation" if event.isolated else ""
    return f"its turn was recovered, attempt {event.attempt}: {event.action}{isolated}{suspect}"


def _compacted(event: Compacted) -> str:
    sizes = f", {event.tokens_before:,} → {event.tokens_after:,} tokens" if event.tokens_before else ""
    why = f"; {event.reason}" if event.reason else ""
    return f"events up to {event.upto_seq}{sizes}{why}"


def _remembered(event: FactRemembered) -> str:
    replaced = f", corrects fact-{event.replaces}" if event.replaces else ""
    sources = f", with content of {', '.join(event.sources)} in the context" if event.sources else ""
    return f"scope {event.scope}{replaced}{sources}"


def _checked(event: GoalChecked) -> str:
    found = f"; evidence: {event.evidence}" if event.evidence else ""
    cost = f", {_money(event.cost)}" if event.cost else ""
    return f"{event.reason}{found} ({counted(event.turns, 'turn')}{cost}, checked by {event.model})"


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _money(dollars: float) -> str:
    """An amount of an event, which may come from a damaged or imported log."""
    return format_money(to_nano(min(dollars, HIGHEST_COST)))
