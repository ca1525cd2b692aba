"""A store with a day of work in it, made up, for pictures, tests and figures of the dashboard."""

import random
from collections.abc import Sequence

from holdfast.identity import identity
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
from holdfast.store import approvals, leases, log, owners, sessions, workers
from holdfast.store.database import Transaction

TITLES = (
    "Move the billing tables to PostgreSQL",
    "Why is the nightly build red?",
    "Draft the release notes of 2.4",
    "Find the slow query on the orders page",
    "Plan a week in Lisbon",
    "Read the logs of the mail server",
    "Rename the internal packages",
    "Explain the retry policy to a new colleague",
    "Reproduce the flaky upload test",
    "Summarise the meeting of Tuesday",
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
ANSWER = """The build fails in `tests/upload/test_resume.py`, and only there. Two things come together:

1. The test waits **a fixed 200 ms** for the second part to arrive.
2. Since Monday the runner has half the cores, so the part takes up to 640 ms.

| run | cores | second part | result |
|---|---:|---:|---|
| Sunday | 8 | 140 ms | passed |
| Monday | 4 | 410 ms | failed |
| Tuesday | 4 | 640 ms | failed |

I would wait for the part itself instead of for a time:

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
    """A whole turn in which a tool was used."""
    call = ToolCall("call-1", "terminal", '{"command":"pytest tests/upload -x -q 2>&1 | tail -20"}')
    return [
        TurnStarted(turn_id=turn_id),
        UserSaid(turn_id=turn_id, parts=(Text(asked),)),
        ModelSaid(
            turn_id=turn_id,
            parts=(Reasoning(text="The newest failures first."), Text("I look at the newest run."), call),
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
    """A session with these events, some seconds between each."""
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
    """Many small sessions, used over the last day; most of them have ended."""
    for number in range(first, first + count):
        chance = random.Random(number)
        at = now - int(chance.random() * 0.97 * DAY) - 2 * MINUTE
        title = f"{TITLES[number % len(TITLES)]}, part {number}"
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
    """Sessions at work, held by a worker: some think, some run a tool."""
    for number in range(first, first + count):
        at = now - (number % 90 + 1) * 23 * SECOND
        name = add(tx, number, [], at, source=("chat", "api", "batch")[number % 3])
        lease = leases.take(tx, name, worker_id)
        owners.attach(tx, name, worker_id)
        call = ToolCall("call-1", "terminal", '{"command":"make test"}')
        events: list[Event] = [
            TurnStarted(turn_id="turn-1"),
            UserSaid(turn_id="turn-1", parts=(Text(ASKED[number % 4]),)),
        ]
        if number % 2:
            events.append(ModelSaid(turn_id="turn-1", parts=(Text("I run the tests."), call)))
            events.append(ToolStarted(turn_id="turn-1", call_id="call-1", name="terminal"))
        log.append(tx, lease, events, at=at)


def hire(tx: Transaction, worker_id: str, kind: str, now: int) -> None:
    """A worker that lives as long as this program does."""
    workers.register(tx, worker_id, kind, identity(), version="0.1.0", at=now)


def showcase(tx: Transaction, number: int, worker_id: str, now: int) -> str:
    """One session that shows what a log can hold: a seam, a call that nobody knows the end of, words cut off, a question."""
    lost = ToolCall("call-9", "terminal", '{"command":"./deploy.sh staging"}')
    events: list[Event] = [
        *turn("turn-1", ASKED[0], ANSWER),
        *turn(
            "turn-2",
            "Yes, please. And make it the default for the other two tests in that folder.",
            "Done: all three wait for what they need. 100 runs, 0 failures.",
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
            parts=(Text("The work stopped before a result was recorded."),),
        ),
        ModelSaid(
            turn_id="turn-3",
            parts=(Text("The deployment was cut off, so I look first whether it took eff"),),
            partial=True,
        ),
        TurnEnded(turn_id="turn-3", outcome="done"),
        Pinned(),
    ]
    name = add(tx, number, events, now - 9 * MINUTE, source="chat", title="Why is the nightly build red?")
    lease = leases.take(tx, name, worker_id)
    owners.attach(tx, name, worker_id)
    risky = ToolCall("call-10", "terminal", '{"command":"rm -rf build/staging && ./deploy.sh staging"}')
    question = "May it run: rm -rf build/staging && ./deploy.sh staging? It removes a folder and all that is in it."
    more: list[Event] = [
        TurnStarted(turn_id="turn-4"),
        UserSaid(turn_id="turn-4", parts=(Text("Clean the folder and deploy again."),)),
        ModelSaid(turn_id="turn-4", parts=(Text("The folder goes first, then the deployment runs again."), risky)),
        ApprovalAsked(turn_id="turn-4", call_id="call-10", question=question),
    ]
    log.append(tx, lease, more, at=now - MINUTE)
    approvals.ask(tx, name, "turn-4", "call-10", question, at=now - MINUTE)
    return name


def people_at_work(tx: Transaction, worker_id: str, now: int) -> str:
    """A day as a small team has it; the id of the session that shows the most."""
    for number in range(1, 40):
        events: list[Event] = turn("turn-1", ASKED[number % 4], ANSWER, tokens=300 + 71 * number)
        if number % 3:
            events.append(Ended(reason="user" if number % 4 else "idle"))
        if number == 7:
            events.append(Titled(title="Übersicht der Rechnungen · 請求書 · فواتير"))
        if number == 12:
            events = [*events[:-1], Quarantined(reason="its turn could not be finished in 3 attempts")]
        add(tx, number, events, now - number * number * MINUTE // 2 - 3 * MINUTE)
    busy(tx, 900, 4, worker_id, now)
    return showcase(tx, 990, worker_id, now)
