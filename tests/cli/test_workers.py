"""`holdfast why`, `workers`, `janitor` and `sessions stats`."""

import json
import os

import pytest

from holdfast.model.event import Quarantined, Recovered, TurnStarted, UserSaid
from holdfast.model.message import Text
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, leases, log, ownership, sessions, workers
from holdfast.supervisor import Supervisor, encode_statuses
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed

ECHO = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:echo"}
LONG_AGO = "1"
NO_FILES = {"bytes": 0, "changes": 0, "contents": 0}
"""The start time of a process that had this one's pid before it."""
BEGUN = [TurnStarted(turn_id="turn-1"), UserSaid(turn_id="turn-1", parts=(Text("Hello"),))]


def owned(seed: Seed, session_id: str, *, started: str | None = None) -> str:
    """A worker that has the session open."""
    worker_id = seed.worker(started=started)
    seed.write(lambda tx: ownership.attach(tx, session_id, worker_id))
    return worker_id


def in_turn(seed: Seed, session_id: str, worker_id: str) -> None:
    """The worker holds the session during a turn."""

    def work(tx: Transaction) -> None:
        log.append(tx, leases.take(tx, session_id, worker_id), BEGUN, at=seed.clock.now())

    seed.write(work)


# why


def test_promise_12_why_is_one_document(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    worker_id = owned(seed, session_id)
    seed.write(lambda tx: approvals.ask(tx, session_id, "turn-1", "c1", "May I?", at=seed.clock.now()))

    shown = holdfast("why", session_id, "--json").json

    assert set(shown) == {
        *(
            "session",
            "owner",
            "doing",
            "decisions",
            "context",
            "attempts",
            "questions",
            "next",
            "processes",
            "reset",
            "terminal",
            "delegation",
            "goal",
        ),
    }
    assert shown["session"]["id"] == session_id
    assert shown["session"]["last_heartbeat_at"] == shown["owner"]["beat_at"]
    assert shown["owner"].items() >= {"id": worker_id, "state": "alive", "pid": os.getpid(), "kind": "serve"}.items()
    assert shown["owner"]["evidence"] == f"process {os.getpid()} runs"
    assert [question["question"] for question in shown["questions"]] == ["May I?"]
    assert shown["questions"][0]["asked_at"].endswith("Z")
    assert (shown["decisions"], shown["attempts"]) == ([], 0)


def test_promise_12_why_shows_each_decision_with_its_time_and_evidence(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(source="api")

    def work(tx: Transaction) -> None:
        tries = [Recovered(turn_id="turn-1", attempt=n, action="continue", evidence=f"death {n}") for n in (1, 2, 3)]
        log.append_unheld(tx, session_id, [*BEGUN, *tries, Quarantined(reason="it died each time")], at=9_000_000)

    seed.write(work)

    shown = holdfast("why", session_id, "--json").json
    told = holdfast("why", session_id)

    assert (shown["session"]["state"], shown["attempts"], shown["owner"]) == ("quarantined", 3, None)
    assert [(decision["kind"], decision["evidence"]) for decision in shown["decisions"]] == [
        *(("recovered", f"death {n}") for n in (1, 2, 3)),
        ("quarantined", "it died each time"),
    ]
    assert {decision["at"] for decision in shown["decisions"]} == {"1970-01-01T00:00:09.000000Z"}
    assert "owner: none" in told.out
    assert "recovery attempts of the open turn: 3" in told.out
    assert "next: nothing by itself; a new message is answered as usual" in told.out


def test_why_explains_a_session_in_the_trash_and_how_to_restore_it(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    seed.trash(session_id, days_ago=1)

    assert "restore" in holdfast("why", session_id, "--json").json["next"]


def test_why_of_an_unknown_session_is_not_found(holdfast: Holdfast, seed: Seed) -> None:
    seed.session()

    assert holdfast("why", "nothing-like-it").code == 3


def test_stored_text_does_not_control_the_terminal(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    seed.write(lambda tx: sessions.trash(tx, session_id, at=1, reason="\x1b[31mred"))

    assert "\x1b" not in holdfast("why", session_id).out


# workers


def test_workers_are_shown_with_their_state_and_evidence(holdfast: Holdfast, seed: Seed) -> None:
    living, dead = seed.worker(), seed.worker(started=LONG_AGO)
    ended = seed.worker()
    seed.write(lambda tx: workers.mark_dead(tx, ended, "closed", at=seed.clock.now()))

    shown = holdfast("workers", "--json").json["workers"]
    every = holdfast("workers", "--all", "--json").json["workers"]

    assert {worker["id"]: worker["state"] for worker in shown} == {living: "alive", dead: "dead"}
    assert {worker["id"]: worker["state"] for worker in every} == {living: "alive", dead: "dead", ended: "ended"}
    [one] = [worker for worker in shown if worker["id"] == dead]
    assert one["evidence"] == f"its process {os.getpid()} on {current_identity().host.partition('#')[0]} has ended"
    assert set(one) == {
        *("id", "kind", "host", "boot", "pid", "process_started", "version", "started_at", "beat", "beat_at"),
        *("stalled_since", "ended_at", "end_reason", "cleared_at", "leaving_at", "tasks", "state", "evidence"),
    }
    table = holdfast("workers").out
    assert living in table
    assert dead in table
    assert ended not in table


def test_a_stalled_worker_is_shown_as_stalled(holdfast: Holdfast, seed: Seed) -> None:
    worker_id = seed.worker()
    seed.write(lambda tx: workers.record_heartbeat(tx, worker_id, at=2_000_000, stalled_since=1_000_000))

    [shown] = holdfast("workers", "--json").json["workers"]

    assert (shown["state"], shown["stalled_since"]) == ("stalled", "1970-01-01T00:00:01.000000Z")


# janitor


@pytest.mark.process
def test_a_sweep_reports_what_it_did(holdfast: Holdfast, seed: Seed) -> None:
    chat, running = seed.session(), seed.session(source="api")
    dead = owned(seed, chat, started=LONG_AGO)
    in_turn(seed, running, dead)

    ran = holdfast.process("janitor", "--once", "--json", env=ECHO)

    done = ran.json["done"]
    assert {worker["id"]: worker["state"] for worker in ran.json["workers"]}[dead] == "dead"
    assert [(action["what"], action["session_id"]) for action in done] == [
        ("marked dead", ""),
        ("ended, because its owner died", chat),
        ("recovering", running),
    ]
    assert all(action["evidence"] for action in done)
    assert holdfast("sessions", "show", chat, "--json").json["end_reason"] == "reaped"
    shown = holdfast("sessions", "show", running, "--json").json
    assert (shown["state"], shown["messages"][-1]["content"]) == ("waiting", "You said: Hello")


@pytest.mark.process
def test_a_second_sweep_finds_nothing_and_the_sweeper_leaves_no_trace(holdfast: Holdfast, seed: Seed) -> None:
    owned(seed, seed.session(), started=LONG_AGO)
    first = holdfast("janitor", "--once")

    second = holdfast("janitor", "--once")

    assert "2 actions taken" in first.out
    assert "0 actions taken" in second.out
    assert holdfast("workers", "--json").json["workers"] == []


# stats


def stats(holdfast: Holdfast) -> dict[str, object]:
    return holdfast("sessions", "stats", "--json").json  # type: ignore[no-any-return]


@pytest.mark.process
def test_promise_9_the_statistics_are_correct_before_and_after_a_sweep(holdfast: Holdfast, seed: Seed) -> None:
    waiting, ours, lost, running = seed.sessions(4)
    owned(seed, ours)
    in_turn(seed, running, owned(seed, lost, started=LONG_AGO))
    ended = seed.session(source="cron")
    seed.write(lambda tx: sessions.end(tx, ended, "cron_complete", at=seed.clock.now()))
    seed.trash(seed.session(), days_ago=1)

    before = stats(holdfast)
    holdfast("janitor", "--once")
    after = stats(holdfast)

    assert before == {
        "total": 5,
        "open": 4,
        "owned": 1,
        "waiting": 1,
        "quarantined": 0,
        "leaked": 2,
        "ended": 1,
        "by_reason": {"cron_complete": 1},
        "by_source": {"chat": 4, "cron": 1},
        "files": NO_FILES,
    }
    assert (after["leaked"], after["open"], after["by_reason"]) == (0, 2, {"reaped": 2, "cron_complete": 1})
    states = {one["id"]: one["state"] for one in holdfast("sessions", "list", "--json").json["sessions"]}
    assert (states[ours], states[waiting]) == ("waiting", "waiting")


def test_the_statistics_are_printed_as_a_table(holdfast: Holdfast, seed: Seed) -> None:
    for reason, count in (("cli_close", 3), ("reaped", 1)):
        for session_id in seed.sessions(count):
            seed.write(lambda tx, one=session_id, why=reason: sessions.end(tx, one, why, at=1))

    out = holdfast("sessions", "stats").out

    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert {"total 4 100%", "open 0 0%", "orphaned 0 0%", "ended: closed 3 75%", "ended: worker died 1 25%"} <= lines


def test_the_statistics_of_an_empty_store_are_empty(holdfast: Holdfast) -> None:
    shown = stats(holdfast)

    assert {name: value for name, value in shown.items() if value} == {"files": NO_FILES}
    assert "total" in holdfast("sessions", "stats").out


# end reasons that the commands record themselves


@pytest.mark.process
@pytest.mark.parametrize("words", [["run", "Hello"], ["chat"]])
def test_a_run_and_a_chat_that_end_in_order_are_recorded_so(holdfast: Holdfast, words: list[str]) -> None:
    holdfast.process(*words, env=ECHO, input=b"Hello\n")

    [session] = holdfast("sessions", "list", "--json").json["sessions"]

    assert (session["state"], session["end_reason"], session["worker_id"]) == ("ended", "cli_close", None)
    assert json.loads(holdfast("workers", "--json").out) == {"workers": []}


@pytest.mark.process
def test_workers_and_doctor_show_the_background_tasks_of_each_worker(holdfast: Holdfast, seed: Seed) -> None:
    living = seed.worker()
    report = Supervisor(seed.clock).watch("janitor", every=1)
    report.failed(OSError(5, "Input/output error"))
    told = encode_statuses([report.status()])
    seed.write(lambda tx: workers.record_heartbeat(tx, living, at=seed.clock.now(), tasks=told))

    [task] = holdfast("workers", "--json").json["workers"][0]["tasks"]
    table, doctor = holdfast("workers").out, holdfast("doctor").out

    assert (task["name"], task["state"], task["failures"]) == ("janitor", "failing", 1)
    assert "Input/output error" in table
    assert f"task janitor of worker {living} is failing" in doctor
