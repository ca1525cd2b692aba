"""Explains a session: its owner, what it is doing, why it ended or was resumed, and what happens next.

Everything comes from the log and the store; nothing is guessed.
"""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine.context.budget import DEFAULT_WINDOW, ContextFill, measure_fill
from holdfast.engine.decisions import Decision, decided
from holdfast.engine.liveness.janitor import WorkerVerdict, assess_worker
from holdfast.engine.process_port import Running, running
from holdfast.engine.reset.policy import ResetPolicies
from holdfast.engine.reset.reset import NEVER, outlook
from holdfast.engine.turn.recovery import POLICY, attempts
from holdfast.model.delegation import DelegationRecord, state_line
from holdfast.model.entry import Entry
from holdfast.model.event import Event
from holdfast.model.goal import Goal, describe_goal
from holdfast.model.process_identity import Identity
from holdfast.model.sanitize import one_line
from holdfast.model.session import Session, collapse_line
from holdfast.model.text import counted
from holdfast.model.times import Clock
from holdfast.model.turn import Turn, turn_of
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, containers, delegations, goals, log, resets, workers
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.containers import Container
from holdfast.store.repos.workers import Worker


class Explanation(msgspec.Struct, frozen=True):
    session: Session
    owner: Worker | None
    verdict: WorkerVerdict | None
    doing: str
    decisions: list[Decision]
    next: str
    attempts: int
    questions: list[Approval]
    fill: ContextFill | None = None
    """How full its context is, if the model's window is known."""
    processes: list[Running] = []
    """Its running background processes, each classified."""
    reset: str = ""
    """When it will be reset, or what blocks that."""
    terminal: str = ""
    """Where its commands run: the terminal backend, and the container."""
    delegation: list[str] = []
    """The task that was delegated to it, and its sub-agents."""
    children: list[str] = []
    """The sessions of its sub-agents."""
    goal: list[str] = []
    """Its newest goal, and the state of that."""

    @property
    def headline(self) -> str:
        """The state of the session in one sentence."""
        if self.session.state == "waiting":
            return f"{self.session.id} is waiting"
        if self.session.state == "ended":
            return f"{self.session.id} has ended"
        return f"{self.session.id} is {self.session.state}: {self.doing}"


class ExplainSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that an explanation needs besides the store."""

    clock: Clock
    idle_minutes: int = 60
    compact_at: float = 0.75
    window: Callable[[str], int] = lambda model: DEFAULT_WINDOW
    """The context window of a model, in tokens."""
    policies: ResetPolicies = NEVER
    """The reset policies."""
    terminal: Callable[[Event], str] = lambda opened: "local"
    """The terminal backend of the session that this event opened."""


def why(tx: Transaction, session: Session, known: ExplainSettings, ours: Identity) -> Explanation:
    """Explain a session. `ours` identifies the process that asks."""
    owner = workers.get(tx, session.worker_id) if session.worker_id else None
    entries = log.read_complete(tx, session)
    return explain(
        session,
        entries,
        owner,
        None if owner is None else assess_worker(owner, ours),
        approvals.list_unanswered(tx, session.id),
        idle_minutes=known.idle_minutes,
        fill=measure_fill(entries, known.window(session.summary.model), known.compact_at),
        processes=running(tx, session.id, ours, known.clock.monotonic()),
        reset=outlook(known.policies, session, resets.find_skip(tx, session), known.clock.now()),
        terminal=describe_terminal(entries, known, containers.get_current(tx, session.id)),
        task=delegations.get(tx, session.id),
        children=delegations.list_children(tx, session.id),
        goal=goals.get(tx, session.id) if session.summary.goal else None,
    )


def explain(
    session: Session,
    entries: Sequence[Entry],
    owner: Worker | None,
    verdict: WorkerVerdict | None,
    questions: list[Approval],
    *,
    idle_minutes: int,
    fill: ContextFill | None = None,
    processes: Sequence[Running] = (),
    reset: str = "",
    terminal: str = "",
    task: DelegationRecord | None = None,
    children: Sequence[DelegationRecord] = (),
    goal: Goal | None = None,
) -> Explanation:
    """Build the explanation. Pure."""
    turn = turn_of(entries)
    tried = attempts(entries, turn.id) if turn.id is not None else 0
    return Explanation(
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
        terminal=terminal,
        delegation=describe_delegation(task, children),
        children=[record.child_id for record in children],
        goal=[] if goal is None else [f"goal: {one_line(goal.text)}", f"the goal is {describe_goal(goal)}"],
    )


def describe_delegation(task: DelegationRecord | None, children: Sequence[DelegationRecord]) -> list[str]:
    """The session's own task, if it is a child, and its children."""
    own = [] if task is None else [f"sub-agent of {task.parent_id} (call {task.call_id}): {state_line(task)}"]
    return [*own, *(f"sub-agent {one.child_id}: {state_line(one)}: {one.title}" for one in children)]


def describe_terminal(entries: Sequence[Entry], known: ExplainSettings, container: Container | None) -> str:
    """The terminal backend of the session, with its container."""
    name = known.terminal(entries[0].event)
    return name if container is None else f"{name}, {container.id[:12]} of {container.image} on {container.host}"


def doing(session: Session, turn: Turn, questions: Sequence[Approval]) -> str:
    """What the session is doing now, in a phrase."""
    match session.state:
        case "running" if turn.delegated & turn.started and not turn.acting:
            return f"waiting for {counted(len(turn.delegated & turn.started), 'sub-agent')}"
        case "asking" | "running" if questions:
            return f"waiting for approval: {collapse_line(questions[0].question)}"
        case "running" if turn.open_calls:
            return f"running {', '.join(call.name for call in turn.open_calls)}"
        case "running":
            return "asking the model"
        case "interrupted":
            return "its turn is unfinished: the worker is gone"
        case "quarantined":
            return "waiting; its last turn was set aside"
        case "ended":
            return "ended"
        case _:
            return "waiting"


def coming(
    session: Session, verdict: WorkerVerdict | None, questions: Sequence[Approval], tried: int, *, idle_minutes: int
) -> str:
    """What happens next, and what the user can do."""
    summary = session.summary
    if summary.trashed_at is not None:
        return f"nothing: it is in the trash; 'holdfast sessions restore {session.id}' restores it"
    if session.state == "ended" and summary.goal == "active":
        return "nothing by itself; when it is resumed, it continues with its goal"
    if session.state == "ended":
        return "nothing by itself; a new message reopens it"
    if session.state == "quarantined":
        return "nothing by itself; a new message is answered as usual, and /retry repeats the turn that was set aside"
    if verdict is not None and verdict.state in ("dead", "ended"):
        return "the next sweep takes it from its dead worker"
    if verdict is not None and verdict.state == "stopped":
        return "its turn waits until its process is continued; a stopped process is never declared dead"
    if session.state == "asking":
        return "its turn continues when the question is answered"
    if session.state == "running":
        return "its turn continues" if not questions else "its turn continues when the question is answered"
    if session.state == "interrupted":
        if POLICY[summary.source] == "continue":
            return f"the next sweep resumes its turn (attempt {tried + 1})"
        return "the next sweep ends it, because its owner died; its turn can be resumed afterwards"
    if summary.goal == "active":
        return "its goal is checked, and it continues with the goal or stops; with sub-agents in the background, after their results"
    if session.owner_worker is not None:
        return "it ends when its owner closes it or dies"
    if summary.source == "api":
        return f"it is ended as idle {idle_minutes} minutes after its last use; the next request reopens it"
    return "it stays open and waits for the next message"
