"""Explains a session: whose it is, what it is doing, why it ended, was taken up again or was not, and what comes next.

Everything here is read off the log and the store; nothing is guessed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.engine.calendar import Policies
from holdfast.engine.fill import Fill, fill_of
from holdfast.engine.handover import asked_by
from holdfast.engine.janitor import Verdict, first_look
from holdfast.engine.processes import Running, running
from holdfast.engine.recover import MAX_ATTEMPTS, POLICY, attempts
from holdfast.engine.reset import NEVER, outlook
from holdfast.engine.room import DEFAULT_WINDOW
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Ended,
    Event,
    Forked,
    InputDropped,
    MessagePinned,
    MessageUnpinned,
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
    ToolEnded,
    Trashed,
    TurnEnded,
)
from holdfast.model.identity import Identity
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.model.turn import Turn, turn_of
from holdfast.store import approvals, log, resets, workers
from holdfast.store.approvals import Approval
from holdfast.store.database import Transaction
from holdfast.store.workers import Worker


class Decision(msgspec.Struct, frozen=True):
    """Something that was decided about the session, with its evidence."""

    seq: int
    at: int
    kind: str
    what: str
    evidence: str = ""


class Why(msgspec.Struct, frozen=True):
    session: Session
    owner: Worker | None
    verdict: Verdict | None
    doing: str
    decisions: list[Decision]
    next: str
    attempts: int
    questions: list[Approval]
    fill: Fill | None = None
    """How full its context is, if the window of its model was given."""
    processes: list[Running] = []
    """Its background processes that live, each judged."""
    reset: str = ""
    """When it is reset by itself, or what holds that back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an explanation rests on beside the store: the settings, in the engine's words."""

    clock: Clock
    idle_minutes: int = 60
    compact_at: float = 0.75
    window: Callable[[str], int] = lambda model: DEFAULT_WINDOW
    """How many tokens the context of a model may take."""
    policies: Policies = NEVER
    """When sessions are reset by themselves."""


def why(tx: Transaction, session: Session, known: Known, ours: Identity) -> Why:
    """All that can be said about a session, for whoever asks. `ours` is who asks."""
    owner = workers.get(tx, session.worker_id) if session.worker_id else None
    entries = log.read_whole(tx, session)
    return explain(
        session,
        entries,
        owner,
        None if owner is None else first_look(owner, ours),
        approvals.unanswered(tx, session.id),
        idle_minutes=known.idle_minutes,
        fill=fill_of(entries, known.window(session.summary.model), known.compact_at),
        processes=running(tx, session.id, ours, known.clock.monotonic()),
        reset=outlook(known.policies, session, resets.held(tx, session), known.clock.now()),
    )


def explain(
    session: Session,
    entries: Sequence[Entry],
    owner: Worker | None,
    verdict: Verdict | None,
    questions: list[Approval],
    *,
    idle_minutes: int,
    fill: Fill | None = None,
    processes: Sequence[Running] = (),
    reset: str = "",
) -> Why:
    """All that can be said. Pure."""
    turn = turn_of(entries)
    tried = attempts(entries, turn.id) if turn.id is not None else 0
    return Why(
        session=session,
        owner=owner,
        verdict=verdict,
        doing=doing(session, turn, questions),
        decisions=[decision for entry in entries if (decision := decided(entry)) is not None],
        next=coming(session, verdict, questions, tried, idle_minutes=idle_minutes),
        attempts=tried,
        questions=questions,
        fill=fill,
        processes=list(processes),
        reset=reset,
    )


def doing(session: Session, turn: Turn, questions: Sequence[Approval]) -> str:
    """What goes on in the session now, in a phrase."""
    match session.state:
        case "running" if questions:
            return f"waiting for a person's word: {questions[0].question}"
        case "running" if turn.open_calls:
            return f"running {', '.join(call.name for call in turn.open_calls)}"
        case "running":
            return "asking the model"
        case "interrupted":
            return "nothing: its turn was left open by a worker that is gone"
        case "quarantined":
            return "nothing: recovery gave up on it"
        case "ended":
            return "nothing: it has ended"
        case _:
            return "waiting for input"


def coming(
    session: Session, verdict: Verdict | None, questions: Sequence[Approval], tried: int, *, idle_minutes: int
) -> str:
    """What will happen next, and what a person can do."""
    summary = session.summary
    if summary.trashed_at is not None:
        return f"nothing: it lies in the trash; 'holdfast sessions restore {session.id}' brings it back"
    if session.state == "ended":
        return "nothing by itself; new words reopen it with all its messages"
    if session.state == "quarantined":
        return f"nothing by itself; 'holdfast sessions reopen {session.id}' takes it up again"
    if verdict is not None and verdict.state in ("dead", "ended"):
        return "the next sweep takes it from its dead worker"
    if session.state == "running":
        return "its turn goes on" if not questions else "its turn goes on when the question is answered"
    if session.state == "interrupted":
        if POLICY[summary.source] == "continue":
            return f"the next sweep goes on with its turn (attempt {tried + 1} of {MAX_ATTEMPTS})"
        return "the next sweep ends it as reaped; its turn can be taken up again afterwards"
    if session.owner_worker is not None:
        return "it is ended when its owner leaves it, or reaped when that dies"
    if summary.source == "api":
        return f"it is ended as idle {idle_minutes} minutes after its last use, and reopened by the next"
    return "it waits for input for as long as it takes"


def decided(entry: Entry) -> Decision | None:
    """The decision an event records, if it records one."""
    event = entry.event
    match event:
        case Ended():
            told = f"ended: {event.reason}", event.detail
        case Reopened():
            told = "reopened", event.reason
        case Recovered():
            told = f"its turn was taken up again, attempt {event.attempt}: {event.action}", event.evidence
        case Quarantined():
            told = "put into quarantine", event.reason
        case Compacted():
            sizes = f", {event.tokens_before:,} → {event.tokens_after:,} tokens" if event.tokens_before else ""
            why = f"; {event.reason}" if event.reason else ""
            told = f"compacted to epoch {event.epoch} ({event.how})", f"events up to {event.upto_seq}{sizes}{why}"
        case CompactionFailed():
            told = "a compaction failed", event.reason
        case MessagePinned():
            told = f"message {event.seq} was pinned", ""
        case MessageUnpinned():
            told = f"message {event.seq} is no longer pinned", ""
        case CompactionUndone():
            told = f"a compaction was undone, back to epoch {event.epoch}", ""
        case Rewound():
            told = f"what was said after event {event.to_seq} was taken back", event.why
        case Forked():
            told = f"forked from {event.parent_id}", f"at event {event.at_seq}"
        case Trashed():
            told = "put into the trash", event.reason
        case Restored():
            told = "taken out of the trash", ""
        case ApprovalAsked():
            told = f"a person was asked about call {event.call_id}", event.question
        case ApprovalAnswered():
            reason = f": {event.reason}" if event.reason else ""
            asked = "handing it over to another terminal" if asked_by(event) else f"call {event.call_id}"
            told = f"{asked} was {'allowed' if event.allowed else 'refused'}", f"by {event.by}{reason}"
        case TurnEnded() if event.outcome != "done":
            told = f"a turn was {event.outcome}", event.reason
        case ToolEnded() if event.outcome == "unknown":
            told = (
                f"the outcome of {event.name or event.call_id} is unknown",
                "its worker stopped before a result was recorded",
            )
        case _:
            beside = _beside_the_words(event)
            if beside is None:
                return None
            told = beside
    return Decision(entry.seq, entry.at, entry.kind, *told)


def _beside_the_words(event: Event) -> tuple[str, str] | None:
    """What was decided about resets, processes and requests."""
    match event:
        case Renewed():
            return f"it took the place of {event.previous_id} ({event.rule})", event.reason
        case ResetSkipped():
            return "a reset was skipped", f"{event.reason} {', '.join(event.processes)}".strip()
        case ProcessEnded():
            return f"process {event.process_id} ended: {event.reason}", event.command
        case ProcessExpired():
            return f"process {event.process_id} ran past its time to live", event.evidence
        case ProcessesLeft():
            return f"its processes were left: {event.action} {event.to}".rstrip(), ", ".join(event.processes)
        case InputDropped():
            return "words that waited were taken back", f"they would have begun {event.turn_id}"
        case ReplyRestarted():
            return "the model was asked anew in the middle of its reply", event.reason
        case ResponseDeleted():
            return f"the response of {event.turn_id} is no longer found by its id", "a client deleted it"
        case ProcessesReceived():
            return f"processes of {event.origin} were handed over to it", ", ".join(event.processes)
        case _:
            return None
