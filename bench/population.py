"""Fills a store with an invented day of work, for screenshots, tests and benchmarks of the dashboard."""

import json
import random
from collections.abc import Sequence

from holdfast.model.approval import Proposal, describe
from holdfast.model.event import (
    ApprovalAsked,
    Compacted,
    Ended,
    Event,
    ModelSaid,
    Pinned,
    Quarantined,
    SessionOpened,
    Source,
    Titled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Reasoning, Text, ToolCall
from holdfast.model.times import DAY, MINUTE, SECOND
from holdfast.model.turn import UNKNOWN
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, leases, log, ownership, sessions, workers
from holdfast.tools.command_guard.command_risk import find_risks

TITLES = (
    "Move the billing tables to PostgreSQL",
    "Why is the nightly build red?",
    "Draft the 2.4 release notes",
    "Find the slow query on the orders page",
    "Plan a week in Lisbon",
    "Check the mail server logs",
    "Rename the internal packages",
    "Explain the retry policy to a new colleague",
    "Reproduce the flaky upload test",
    "Summarize Tuesday's meeting",
    "Write a migration for soft deletion",
    "Compare three vector indexes",
    "Clean up unused feature flags",
    "Weekly report for the board",
    "Translate the landing page to Portuguese",
    "Which invoices are overdue?",
    "Set up the staging cluster",
    "Review the pull request about leases",
)
ASKED = (
    "The nightly build has been red since Monday. Can you find out why?",
    "Look at the slowest query of the orders page and tell me what to do about it.",
    "Draft the release notes; keep them short.",
    "Which of our flags are no longer used anywhere?",
)
ANSWER = """The build fails only in `tests/upload/test_resume.py`. There are two causes:

1. The test waits **a fixed 200 ms** for the second part to arrive.
2. Since Monday the runner has had half the cores, so the part takes up to 640 ms.

| run | cores | second part | result |
|---|---:|---:|---|
| Sunday | 8 | 140 ms | passed |
| Monday | 4 | 410 ms | failed |
| Tuesday | 4 | 640 ms | failed |

I would wait for the part itself instead of a fixed time:

```python
async with upload.part(2) as part:
    await part.arrived()   # no clock involved
```

> The product is not affected: it already waits for the part.

Shall I make that change and run the test a hundred times?"""
SUMMARY = """The user wants the nightly build green again. **Found so far:** one test waits for a fixed time; the runner lost half its cores on Monday.

- changed: `tests/upload/test_resume.py`
- still open: run it a hundred times, then merge"""
SOURCES: tuple[Source, ...] = ("chat", "api", "gateway", "run", "cron", "batch", "library")
MODELS = ("anthropic:claude-sonnet-5-5", "openai:gpt-5.4-mini", "local:smollm2")


def session_id(number: int) -> str:
    return f"hf-{number:026}"


def turn(turn_id: str, asked: str, answer: str, *, tokens: int = 900) -> list[Event]:
    """The events of a turn with a tool call."""
    call = ToolCall("call-1", "terminal", '{"command":"pytest tests/upload -x -q 2>&1 | tail -20"}')
    return [
        TurnStarted(turn_id=turn_id),
        UserSaid(turn_id=turn_id, parts=(Text(asked),)),
        ModelSaid(
            turn_id=turn_id,
            parts=(Reasoning(text="Start with the newest failures."), Text("I'll look at the newest run."), call),
        ),
        ToolStarted(turn_id=turn_id, call_id="call-1", name="terminal"),
        ToolEnded(
            turn_id=turn_id,
            call_id="call-1",
            outcome="ok",
            name="terminal",
            millis=2340,
            parts=(
                Text(
                    "F....\nFAILED tests/upload/test_resume.py::test_a_cut_off_part_is_sent_again\n1 failed, 4 passed"
                ),
            ),
        ),
        ModelSaid(turn_id=turn_id, parts=(Text(answer),), usage=Usage(tokens_in=4 * tokens, tokens_out=tokens)),
        TurnEnded(turn_id=turn_id, outcome="done", usage=Usage(tokens_in=4 * tokens, tokens_out=tokens)),
    ]


def add(tx: Transaction, number: int, events: Sequence[Event], at: int, **opened: object) -> str:
    """Add a session with these events, a few seconds apart."""
    chance = random.Random(number)
    source = opened.pop("source", None) or chance.choice(SOURCES)
    channel = f"telegram:{4000 + number % 7}" if source == "gateway" else None
    fact = SessionOpened(
        source=source,  # type: ignore[arg-type] # one of the sources
        channel=channel,
        model=chance.choice(MODELS),
        title=str(opened.get("title") or TITLES[number % len(TITLES)]),
    )
    found, _ = sessions.create(tx, session_id(number), fact, at=at)
    for place, event in enumerate(events):
        log.append_unheld(tx, found.id, [event], at=at + (place + 1) * (1 + number % 7) * SECOND)
    return found.id


def crowd(tx: Transaction, first: int, count: int, now: int) -> None:
    """Add many small sessions of the last day, most of them ended."""
    for number in range(first, first + count):
        chance = random.Random(number)
        at = now - int(chance.random() * 0.97 * DAY) - 2 * MINUTE
        title = f"{TITLES[number % len(TITLES)]} ({number})"
        fact = SessionOpened(source=SOURCES[number % len(SOURCES)], model=MODELS[number % 3], title=title)
        if fact.source == "gateway":
            fact = SessionOpened(source="gateway", channel=f"telegram:{number}", model=MODELS[number % 3], title=title)
        sessions.create(tx, session_id(number), fact, at=at)
        said: list[Event] = [
            TurnStarted(turn_id="turn-1"),
            UserSaid(turn_id="turn-1", parts=(Text(ASKED[number % len(ASKED)]),)),
            ModelSaid(
                turn_id="turn-1",
                parts=(Text("Done."),),
                usage=Usage(tokens_in=400 + number % 2500, tokens_out=60 + number % 300),
            ),
            TurnEnded(
                turn_id="turn-1",
                outcome="done",
                usage=Usage(tokens_in=400 + number % 2500, tokens_out=60 + number % 300),
            ),
        ]
        if number % 5:
            said.append(Ended(reason="reaped" if number % 41 == 0 else "user"))
        log.append_unheld(tx, session_id(number), said[:2], at=at)
        log.append_unheld(tx, session_id(number), said[2:], at=at + int(chance.lognormvariate(1.5, 0.9) * SECOND))


def busy(tx: Transaction, first: int, count: int, worker_id: str, now: int) -> None:
    """Add running sessions of a worker: some wait for the model, some run a tool."""
    for number in range(first, first + count):
        at = now - (number % 90 + 1) * 23 * SECOND
        name = add(tx, number, [], at, source=("chat", "api", "batch")[number % 3])
        lease = leases.take(tx, name, worker_id)
        ownership.attach(tx, name, worker_id)
        call = ToolCall("call-1", "terminal", '{"command":"make test"}')
        events: list[Event] = [
            TurnStarted(turn_id="turn-1"),
            UserSaid(turn_id="turn-1", parts=(Text(ASKED[number % 4]),)),
        ]
        if number % 2:
            events.append(ModelSaid(turn_id="turn-1", parts=(Text("I'll run the tests."), call)))
            events.append(ToolStarted(turn_id="turn-1", call_id="call-1", name="terminal"))
        log.append(tx, lease, events, at=at)


def hire(tx: Transaction, worker_id: str, kind: str, now: int) -> None:
    """Register a worker that is alive as long as this program runs."""
    workers.register(tx, worker_id, kind, current_identity(), version="0.1.0", at=now)


def showcase(tx: Transaction, number: int, worker_id: str, now: int) -> str:
    """Add a session with a compaction, a call with an unknown outcome, an interrupted reply and an open question."""
    lost = ToolCall("call-9", "terminal", '{"command":"./deploy.sh staging"}')
    events: list[Event] = [
        *turn("turn-1", ASKED[0], ANSWER),
        *turn(
            "turn-2",
            "Yes, please. Do the same in the other two tests of that directory.",
            "Done: all three tests now wait for the part. 100 runs, 0 failures.",
        ),
        Compacted(epoch=1, upto_seq=14, summary=SUMMARY, how="model", tokens_before=48_210, tokens_after=6_140),
        TurnStarted(turn_id="turn-3"),
        UserSaid(turn_id="turn-3", parts=(Text("Deploy it to staging."),)),
        ModelSaid(turn_id="turn-3", parts=(lost,)),
        ToolStarted(turn_id="turn-3", call_id="call-9", name="terminal"),
        ToolEnded(
            turn_id="turn-3",
            call_id="call-9",
            outcome="unknown",
            name="terminal",
            parts=(Text(UNKNOWN),),
        ),
        ModelSaid(
            turn_id="turn-3",
            parts=(Text("The deployment was interrupted, so I'll first check whether it took eff"),),
            partial=True,
        ),
        TurnEnded(turn_id="turn-3", outcome="done"),
        Pinned(),
    ]
    name = add(tx, number, events, now - 9 * MINUTE, source="chat", title="Why is the nightly build red?")
    lease = leases.take(tx, name, worker_id)
    ownership.attach(tx, name, worker_id)
    command = "rm -rf build/staging && ./deploy.sh staging"
    risky = ToolCall("call-10", "terminal", json.dumps({"command": command}))
    proposal = Proposal(
        tool="terminal",
        arguments=risky.arguments,
        command=command,
        workdir="/home/ada/upload-service",
        requester="ada",
        findings=find_risks(command),
    )
    question = describe(proposal, name)
    more: list[Event] = [
        TurnStarted(turn_id="turn-4"),
        UserSaid(turn_id="turn-4", parts=(Text("Delete the build directory and deploy again."),)),
        ModelSaid(turn_id="turn-4", parts=(Text("I'll delete the directory, then deploy again."), risky)),
        ApprovalAsked(turn_id="turn-4", call_id="call-10", question=question, proposal=proposal),
    ]
    log.append(tx, lease, more, at=now - MINUTE)
    approvals.ask(tx, name, "turn-4", "call-10", question, at=now - MINUTE, proposal=proposal)
    return name


def people_at_work(tx: Transaction, worker_id: str, now: int) -> str:
    """Add the day of a small team. Returns the id of the `showcase` session."""
    for number in range(1, 40):
        events: list[Event] = turn("turn-1", ASKED[number % 4], ANSWER, tokens=300 + 71 * number)
        if number % 3:
            events.append(Ended(reason="user" if number % 4 else "idle"))
        if number == 7:
            events.append(Titled(title="Übersicht der Rechnungen · 請求書 · فواتير"))
        if number == 12:
            events = [*events[:-1], Quarantined(reason="its worker died 3 times in this turn")]
        add(tx, number, events, now - number * number * MINUTE // 2 - 3 * MINUTE)
    busy(tx, 900, 4, worker_id, now)
    return showcase(tx, 990, worker_id, now)
