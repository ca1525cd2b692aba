"""Any session can be explained: its owner, what it does, past decisions with their evidence, and what happens next."""

import pytest

from holdfast.engine.decisions import decided
from holdfast.engine.explain import explain
from holdfast.engine.liveness.handover_question import HANDOVER
from holdfast.engine.liveness.janitor import WorkerVerdict
from holdfast.engine.turn.recovery import POLICY
from holdfast.model.entry import Entry
from holdfast.model.event import (
    KINDS,
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
    Imported,
    InputDropped,
    InputRefused,
    InstructionsLoaded,
    ItemAdded,
    MessagePinned,
    MessageRemoved,
    MessageUnpinned,
    MetadataChanged,
    ModeChanged,
    ModelCalled,
    ModelChanged,
    ModelSaid,
    Pinned,
    PlanChanged,
    ProcessEnded,
    ProcessesLeft,
    ProcessesReceived,
    ProcessExpired,
    ProcessStarted,
    Quarantined,
    Recovered,
    Renewed,
    Reopened,
    ReplyRestarted,
    ResetSkipped,
    ResponseDeleted,
    Restored,
    Rewound,
    SessionOpened,
    SystemChanged,
    Titled,
    ToolCheckpointed,
    ToolEnded,
    ToolStarted,
    Trashed,
    TurnEnded,
    TurnStarted,
    Unpinned,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall
from holdfast.model.session import Session, State, summarise
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.workers import Worker

TURN = "turn-1"
WORKER = "worker-1"
OPENED = SessionOpened(source="api", model="m")
STARTED = TurnStarted(turn_id=TURN, worker_id=WORKER)
SAID = UserSaid(turn_id=TURN, parts=(Text("Mail Bo"),))
CALL = ToolCall("c1", "mail", "{}")
ASKED = ModelSaid(turn_id=TURN, parts=(CALL, ToolCall("c2", "look", "{}")))
DONE = TurnEnded(turn_id=TURN, outcome="done")
ALIVE = WorkerVerdict("alive", "process 4711 runs")
DEAD = WorkerVerdict("dead", "no process 4711")
WENT = WorkerVerdict("ended", "closed")
QUESTION = Approval("hf-1", TURN, "c1", "May I mail everybody?", 1, None, None)


def log_of(*events: Event) -> list[Entry]:
    return [Entry(seq, seq * 1000, event) for seq, event in enumerate(events, 1)]


def session_of(entries: list[Entry], *, lease: str | None = None, owner: str | None = None) -> Session:
    return Session("hf-1", len(entries), "h", lease, 1, summarise(entries), owner)


def worker() -> Worker:
    return Worker(
        *(WORKER, "chat", "here#1", "boot", 4711, "1000", "0"),
        started_at=1,
        beat=3,
        beat_at=9,
        stalled_since=None,
        ended_at=None,
        end_reason=None,
    )


# states: what it does and what happens next

Row = tuple[str, list[Event], dict[str, str], WorkerVerdict | None, list[Approval], State, str, str]
STATES: list[Row] = [
    ("asking", [OPENED, STARTED, SAID], {"lease": WORKER}, ALIVE, [], "running", "asking the model", "continues"),
    (
        "running tools",
        [OPENED, STARTED, SAID, ASKED],
        {"lease": WORKER},
        ALIVE,
        [],
        "running",
        "running mail, look",
        "its turn continues",
    ),
    (
        "waiting for an answer",
        [OPENED, STARTED, SAID, ASKED],
        {"lease": WORKER},
        ALIVE,
        [QUESTION],
        "running",
        "waiting for approval: May I mail everybody?",
        "when the question is answered",
    ),
    (
        "held by a dead worker",
        [OPENED, STARTED, SAID],
        {"lease": WORKER},
        DEAD,
        [],
        "running",
        "asking the model",
        "the next sweep takes it from its dead worker",
    ),
    (
        "owned by a dead worker",
        [SessionOpened(source="chat"), STARTED, SAID, DONE],
        {"owner": WORKER},
        DEAD,
        [],
        "waiting",
        "waiting",
        "the next sweep takes it from its dead worker",
    ),
    (
        "owned by a worker that was buried and not seen to yet",
        [SessionOpened(source="chat"), STARTED, SAID, DONE],
        {"owner": WORKER},
        WENT,
        [],
        "waiting",
        "waiting",
        "the next sweep takes it from its dead worker",
    ),
    (
        "owned by a living worker",
        [SessionOpened(source="chat"), STARTED, SAID, DONE],
        {"owner": WORKER},
        ALIVE,
        [],
        "waiting",
        "waiting",
        "it ends when its owner closes it or dies",
    ),
    ("of the API, between turns", [OPENED], {}, None, [], "waiting", "waiting", "ended as idle 45 minutes"),
    (
        "of a gateway, between turns",
        [SessionOpened(source="gateway", channel="telegram:1")],
        {},
        None,
        [],
        "waiting",
        "waiting",
        "waits for the next message",
    ),
    (
        "ended",
        [OPENED, Ended(reason="idle")],
        {},
        None,
        [],
        "ended",
        "ended",
        "a new message reopens it",
    ),
    (
        "in quarantine",
        [OPENED, STARTED, SAID, Quarantined(reason="three times")],
        {},
        None,
        [],
        "quarantined",
        "waiting; its last turn was set aside",
        "a new message is answered as usual",
    ),
    (
        "in the trash",
        [OPENED, Trashed()],
        {},
        None,
        [],
        "waiting",
        "waiting",
        "'holdfast sessions restore hf-1' restores it",
    ),
]


@pytest.mark.parametrize(
    ("events", "held", "verdict", "questions", "state", "doing", "coming"),
    [row[1:] for row in STATES],
    ids=[row[0] for row in STATES],
)
def test_promise_12_a_state_is_explained(
    events: list[Event],
    held: dict[str, str],
    verdict: WorkerVerdict | None,
    questions: list[Approval],
    state: State,
    doing: str,
    coming: str,
) -> None:
    entries = log_of(*events)
    owner = worker() if held else None

    why = explain(session_of(entries, **held), entries, owner, verdict, questions, idle_minutes=45)

    assert why.session.state == state
    assert why.doing == doing
    assert coming in why.next
    assert (why.owner, why.verdict, why.questions) == (owner, verdict, questions)


@pytest.mark.parametrize("source", POLICY)
def test_promise_12_the_next_step_of_an_interrupted_turn_depends_on_its_source(source: str) -> None:
    entries = log_of(
        SessionOpened(source=source),  # type: ignore[arg-type]
        STARTED,
        SAID,
        Recovered(turn_id=TURN, attempt=1, action="continue"),
    )

    why = explain(session_of(entries), entries, None, None, [], idle_minutes=45)

    assert (why.session.state, why.attempts) == ("interrupted", 1)
    if POLICY[source] == "continue":
        assert why.next == "the next sweep resumes its turn (attempt 2)"
    else:
        assert why.next.startswith("the next sweep ends it, because its owner died")


# decisions

DECISIONS: list[tuple[Event, str | None, str]] = [
    (Ended(reason="reaped", detail="worker-1 is gone"), "ended: reaped", "worker-1 is gone"),
    (Reopened(reason="asked for"), "reopened", "asked for"),
    (
        Recovered(turn_id=TURN, attempt=2, action="continue", evidence="no process 4711"),
        "its turn was recovered, attempt 2: continue",
        "no process 4711",
    ),
    (
        Recovered(turn_id=TURN, attempt=3, action="continue", evidence="no process 4711", suspect=True, isolated=True),
        "its turn was recovered, attempt 3: continue, in isolation, suspected of causing the crash",
        "no process 4711",
    ),
    (Quarantined(reason="three times", turn_id="turn-9"), "turn turn-9 was quarantined", "three times"),
    (ResetSkipped(reason="a process works:", processes=("p1", "p2")), "a reset was skipped", "a process works: p1, p2"),
    (
        Compacted(epoch=2, upto_seq=9, summary="s", how="model"),
        "the context was compacted (model, epoch 2)",
        "events up to 9",
    ),
    (CompactionFailed(reason="the summary was empty"), "a compaction failed", "the summary was empty"),
    (
        Compacted(epoch=2, upto_seq=9, summary="s", how="digest", tokens_before=4_000, tokens_after=900),
        "the context was compacted (digest, epoch 2)",
        "events up to 9, 4,000 → 900 tokens",
    ),
    (MessagePinned(seq=5), "message 5 was pinned", ""),
    (MessageRemoved(seq=5), "message 5 left the context", "a client removed it from its conversation"),
    (MessageUnpinned(seq=5), "message 5 is no longer pinned", ""),
    (CompactionUndone(epoch=1), "a compaction was undone, back to epoch 1", ""),
    (Rewound(to_seq=4, why="retry"), "everything after event 4 was undone", "retry"),
    (Forked(parent_id="hf-0", at_seq=4, at_hash="h"), "forked from hf-0", "at event 4"),
    (Trashed(reason="tidied up"), "moved to the trash", "tidied up"),
    (Restored(), "restored from the trash", ""),
    (
        ApprovalAsked(turn_id=TURN, call_id="c1", question="May I?"),
        "approval was requested for call c1",
        "May I?",
    ),
    (
        ApprovalAnswered(turn_id=TURN, call_id="c1", allowed=False, by="ann"),
        "call c1 was denied",
        "by ann",
    ),
    (
        ApprovalAnswered(turn_id=TURN, call_id="c1", allowed=False, by="ann", reason="not today"),
        "call c1 was denied",
        "by ann: not today",
    ),
    (
        ApprovalRuleApplied(turn_id=TURN, call_id="c1", rule_id="rule-1", by="ann"),
        "call c1 was allowed by rule rule-1",
        "which ann made",
    ),
    (
        ApprovalAnswered(turn_id=HANDOVER, call_id="worker-2@17", allowed=True, by="chat"),
        "handover to another terminal was allowed",
        "by chat",
    ),
    (TurnEnded(turn_id=TURN, outcome="failed", reason="no answer"), "a turn failed", "no answer"),
    (
        ToolEnded(turn_id=TURN, call_id="c1", name="mail", outcome="unknown"),
        "the outcome of mail is unknown",
        "its worker stopped before a result was recorded",
    ),
    (
        TurnEnded(turn_id=TURN, outcome="cancelled", code="forked"),
        "the fork starts in the middle of a turn",
        "the open calls are closed in the fork",
    ),
    (TurnEnded(turn_id=TURN, outcome="done", code="forked"), None, ""),
    (SystemChanged(system="Be\nbrief."), "the client's system prompt changed", "Be brief."),
    (SystemChanged(), "the client's system prompt changed", "the built-in one is used"),
    (InstructionsLoaded(turn_id=TURN, part="environment", text="x"), None, ""),
    (
        InstructionsLoaded(turn_id=TURN, part="rules", text="x", notices=("AGENTS.md was changed",)),
        "loaded for the model: rules",
        "AGENTS.md was changed",
    ),
    (
        FactRemembered(turn_id=TURN, call_id="c1", replaces=3, sources=("fetch_url",)),
        "a fact was saved for later sessions",
        "scope user, corrects fact-3, with content of fetch_url in the context",
    ),
    (InputRefused(turn_id=TURN, seqs=(4,), reason="flagged"), "the provider refused 1 message; set aside", "flagged"),
    (DONE, None, ""),
    (ToolEnded(turn_id=TURN, call_id="c1", outcome="ok"), None, ""),
    (OPENED, None, ""),
    (STARTED, None, ""),
    (SAID, None, ""),
    (ASKED, None, ""),
    (ToolStarted(turn_id=TURN, call_id="c1", name="mail"), None, ""),
    (ToolCheckpointed(turn_id=TURN, call_id="c1", state="{}"), None, ""),
    (Titled(title="x"), None, ""),
    (ModelChanged(model="m"), None, ""),
    (
        FilesRestored(to_seq=4, files=("a", "b"), skipped=("c: it is too large now",), by="ann"),
        "2 files restored to event 4",
        "by ann; skipped: c: it is too large now",
    ),
    (
        ModeChanged(mode="plan", previous="edits", by="ann"),
        "the permission mode was changed from edits to plan",
        "by ann",
    ),
    (ProcessStarted(process_id="p", command="sleep"), None, ""),
    (ProcessEnded(process_id="p", reason="exit code 3", command="make"), "process p ended: exit code 3", "make"),
    (ProcessExpired(process_id="p", evidence="idle"), "process p ran past its time to live", "idle"),
    (ProcessesLeft(processes=("p", "q"), action="keep"), "its processes were left: keep", "p, q"),
    (ProcessesLeft(processes=("p",), action="hand_over", to="hf-2"), "its processes were left: hand_over hf-2", "p"),
    (
        ChildStarted(turn_id=TURN, call_id="c", child_id="hf-2", title="Count"),
        "a task was delegated to hf-2",
        "call c waits for it: Count",
    ),
    (
        ChildEnded(child_id="hf-2", call_id="c", outcome="failed", reason="no luck"),
        "sub-agent hf-2 has ended: failed",
        "no luck",
    ),
    (ProcessesReceived(processes=("p",), origin="hf-1"), "processes of hf-1 were handed over to it", "p"),
    (
        ContainerCreated(container_id="c" * 64, name="n", image="debian", engine="podman", settings_hash="h"),
        "container cccccccccccc was created for the terminal",
        "debian by podman",
    ),
    (
        ContainerRestarted(container_id="c1", reason="it had stopped"),
        "container c1 was started again",
        "it had stopped",
    ),
    (ContainerLost(container_id="c1", reason="gone"), "container c1 was lost", "gone"),
    (ContainerRemoved(container_id="c1", reason="ended"), "container c1 was removed", "ended"),
    (Renewed(previous_id="hf-1", rule="daily", reason="6 o'clock"), "it replaced hf-1 (daily)", "6 o'clock"),
    (InputDropped(turn_id=TURN), "queued input was withdrawn", f"it would have started {TURN}"),
    (
        ReplyRestarted(turn_id=TURN, text="Well", reason="no line"),
        "the model was called again in the middle of its reply",
        "no line",
    ),
    (
        ResponseDeleted(turn_id=TURN),
        f"the response of {TURN} is no longer found by its id",
        "a client deleted it",
    ),
    (Imported(format="hermes"), None, ""),
    (Pinned(), None, ""),
    (Unpinned(), None, ""),
    (MetadataChanged(metadata={"a": "b"}), None, ""),
    (PlanChanged(turn_id=TURN, call_id="c"), None, ""),
    (ModelCalled(purpose="title", model="openai:x"), None, ""),
    (BudgetRaised(amount=1.5, by="telegram:42"), "its budget was raised by $1.50", "by telegram:42"),
    (ItemAdded(adapter="a", item="{}"), None, ""),
    (
        GoalSet(goal_id="g", text="all tests pass", deadline_at=1, max_turns=5, by="local"),
        "a goal was set by local",
        "all tests pass",
    ),
    (
        GoalChecked(
            goal_id="g",
            after_turn=TURN,
            decision="continue",
            reason="two fail",
            evidence="2 failed",
            model="a:b",
            turns=3,
            cost=0.5,
        ),
        "its goal was checked: continue",
        "two fail; evidence: 2 failed (3 turns, $0.5000, checked by a:b)",
    ),
    (GoalPaused(goal_id="g", reason="it is stuck"), "its goal was paused", "it is stuck"),
    (GoalResumed(goal_id="g", by="local"), "its goal was resumed by local", ""),
    (GoalEnded(goal_id="g", outcome="done", reason="all pass"), "its goal ended: done", "all pass"),
]


@pytest.mark.parametrize(("event", "what", "evidence"), DECISIONS, ids=[type(row[0]).__name__ for row in DECISIONS])
def test_promise_12_a_decision_in_the_log_is_explained_with_its_evidence(
    event: Event, what: str | None, evidence: str
) -> None:
    decision = decided(Entry(7, 1000, event))

    if what is None:
        assert decision is None
    else:
        assert decision is not None
        assert (decision.what, decision.evidence) == (what, evidence)
        assert (decision.seq, decision.at, decision.kind) == (7, 1000, Entry(7, 1000, event).kind)


def test_every_kind_of_event_is_in_the_table_of_decisions() -> None:
    assert {type(row[0]) for row in DECISIONS} == set(KINDS.values())


def test_decisions_come_in_the_order_of_the_log() -> None:
    entries = log_of(
        OPENED, Ended(reason="idle"), Reopened(), STARTED, SAID, Recovered(turn_id=TURN, attempt=1, action="close")
    )

    why = explain(session_of(entries), entries, None, None, [], idle_minutes=45)

    assert [decision.kind for decision in why.decisions] == ["ended", "reopened", "recovered"]


def test_attempts_are_reset_when_a_user_reopens_and_not_by_a_message() -> None:
    tries = [Recovered(turn_id=TURN, attempt=n, action="continue") for n in (1, 2)]
    for reopened, attempts in ((Reopened(by_person=True), 0), (Reopened(), 2)):
        entries = log_of(OPENED, STARTED, SAID, *tries, Ended(reason="reaped"), reopened)

        assert explain(session_of(entries), entries, None, None, [], idle_minutes=45).attempts == attempts
