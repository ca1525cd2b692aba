"""`holdfast gateway` and `holdfast cron`, as a user runs them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.model.times import iso
from holdfast.store.database import Transaction
from holdfast.store.repos import contacts, inbox, outbox, platforms
from holdfast.store.repos.contacts import Person
from holdfast.store.repos.inbox import NewInboundMessage
from holdfast.store.repos.outbox import Address, OutboundMessage
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.conftest import Holdfast

NOW = SystemClock().now()


def write(home: Path, work: Callable[[Transaction], Any]) -> Any:
    async def go() -> Any:
        database = await open_sqlite(home / "holdfast.db")
        try:
            return await database.write(work)
        finally:
            await database.close()

    return asyncio.run(go())


def fill(tx: Transaction) -> None:
    """One message that could not be parsed, one that waits, and one reply that failed."""
    posts = [
        NewInboundMessage("in-1", "?", "sha256:1", '"no json\\u001b[2J"', "1", "it is no JSON"),
        NewInboundMessage("in-2", "c1", "m2", '"{}"', "2"),
    ]
    inbox.put(tx, "telegram", posts, at=NOW)
    outbox.put(tx, "out-1", Address("telegram", "c1"), OutboundMessage(text="hello"), at=NOW)
    outbox.fail(tx, "out-1", "the chat is gone")


def test_status_shows_configured_platforms_and_queues(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[gateway.matrix]\nuser = "@a:b"\n')
    (home / "config.toml").chmod(0o600)
    write(home, fill)
    found = {one["name"]: one for one in holdfast("gateway", "status", "--json").json["platforms"]}

    assert (found["matrix"]["state"], found["matrix"]["configured"]) == ("off", True)
    assert not found["telegram"]["configured"]
    assert [found["telegram"][name] for name in ("received", "waiting", "dead", "to_send", "failed")] == [2, 1, 1, 0, 1]
    assert "1 waiting, 1 dead" in holdfast("gateway", "status").out


def test_a_platform_whose_worker_is_gone_is_not_shown_as_connected(holdfast: Holdfast, home: Path) -> None:
    from holdfast.store.repos import workers

    def left(tx: Transaction) -> None:
        who = workers.Identity(host="here", boot="b", pid=1, process_started="1")
        workers.register(tx, "worker-1", "serve", who, version="0", at=NOW)
        platforms.take(tx, "telegram", "worker-1", at=NOW)
        platforms.record_state(tx, "telegram", "worker-1", "connected", at=NOW)
        workers.mark_dead(tx, "worker-1", "it was killed", at=NOW)

    home.mkdir()
    write(home, left)
    [found] = holdfast("gateway", "status", "--json").json["platforms"]

    assert (found["state"], found["worker_id"]) == ("off", None)
    assert "killed" in found["error"]


def test_status_says_since_when_a_platform_is_connected_and_what_its_last_error_was(
    holdfast: Holdfast, home: Path
) -> None:
    from holdfast.process_lookup import current_identity
    from holdfast.store.repos import workers

    def troubled(tx: Transaction) -> None:
        workers.register(tx, "worker-1", "serve", current_identity(), version="0", at=NOW)
        platforms.take(tx, "telegram", "worker-1", at=NOW)
        platforms.record_state(tx, "telegram", "worker-1", "down", at=NOW + 1_000_000, error="the cable was cut")
        platforms.record_state(tx, "telegram", "worker-1", "connected", at=NOW + 2_000_000)
        fill(tx)

    home.mkdir()
    write(home, troubled)
    [found] = holdfast("gateway", "status", "--json").json["platforms"]
    table = holdfast("gateway", "status").out

    assert (found["state"], found["since"], found["error"], found["error_at"]) == (
        "connected",
        iso(NOW + 2_000_000),
        "the cable was cut",
        iso(NOW + 1_000_000),
    )
    assert "the cable was cut" in table
    assert "2 received, 1 waiting, 1 dead" in table
    assert "0 to send, 0 unknown, 1 failed" in table


def test_dead_letters_are_shown_with_their_payload_and_replayed(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    write(home, fill)
    shown = holdfast("gateway", "dead", "--json").json
    table = holdfast("gateway", "dead").out

    assert [(one["id"], one["reason"], one["payload"]) for one in shown["in"]] == [
        ("in-1", "it is no JSON", "no json\x1b[2J")
    ]
    assert [(one["id"], one["reason"], one["text"]) for one in shown["out"]] == [("out-1", "the chat is gone", "hello")]
    assert "\x1b" not in table
    assert holdfast("gateway", "dismiss").code == 2
    assert holdfast("gateway", "dismiss", "in-9").code == 3
    assert (
        holdfast("gateway", "dismiss", "out-1").out == "Dismissed out-1; retry it with: holdfast gateway replay out-1\n"
    )
    assert holdfast("gateway", "dismiss", "out-1").code == 1
    assert holdfast("gateway", "dead", "--json").json["out"] == []
    assert holdfast("gateway", "replay", "out-1").out == "Queued out-1 for retry\n"
    write(home, lambda tx: outbox.fail(tx, "out-1", "the chat is gone"))
    assert holdfast("gateway", "replay").code == 2
    assert holdfast("gateway", "replay", "in-9").code == 3
    assert holdfast("gateway", "replay", "in-2").code == 1
    assert holdfast("gateway", "replay", "--all").out == "Queued in-1 for retry\nQueued out-1 for retry\n"
    assert holdfast("gateway", "dead", "--json").json == {"in": [], "out": []}


def test_people_are_paired_with_their_code_and_revoked_again(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    write(home, lambda tx: contacts.request_pairing(tx, Person("telegram", "7", "Mallory", "ABCD-1234", "asked", NOW)))

    assert holdfast("gateway", "pair", "nonsense").code == 3
    assert "Approved Mallory on telegram" in holdfast("gateway", "pair", "abcd-1234").out
    [one] = holdfast("gateway", "people", "--json").json["people"]
    assert (one["person"], one["state"]) == ("7", "allowed")
    assert "Mallory" in holdfast("gateway", "people").out
    assert holdfast("gateway", "unpair", "telegram", "7").code == 0
    assert holdfast("gateway", "unpair", "telegram", "7").code == 3


@pytest.mark.process
def test_a_schedule_is_added_listed_run_shown_and_removed(holdfast: Holdfast, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL", "scripted:echo")
    made = holdfast(
        "cron", "add", "0 8 * * *", "Good morning", "--deliver", "telegram:42", "--timezone", "UTC", "--json"
    )
    schedule = made.json["id"]
    ran = holdfast("cron", "run", schedule)
    shown = holdfast("cron", "show", schedule[5:12], "--json").json

    assert ran.out == "You said: Good morning\n"
    assert [(slot["state"], slot["session_id"][:3]) for slot in shown["slots"]] == [("done", "hf-")]
    [listed] = holdfast("cron", "list", "--json").json["schedules"]
    assert (listed["id"], listed["slots"], listed["next_at"][11:16]) == (schedule, {"done": 1}, "08:00")
    assert "Good morning" in holdfast("cron", "list").out
    assert "1 to send" in holdfast("gateway", "status").out
    [session] = holdfast("sessions", "list", "--all", "--json").json["sessions"]
    assert (session["source"], session["end_reason"]) == ("cron", "cron_complete")
    assert holdfast("cron", "remove", schedule).code == 0
    assert holdfast("cron", "list", "--json").json == {"schedules": []}
    assert holdfast("cron", "show", schedule, "--json").json["schedule"]["removed_at"]


def test_an_invalid_schedule_is_refused_with_a_message(holdfast: Holdfast) -> None:
    assert "five fields" in holdfast("cron", "add", "tomorrow", "x").err
    assert "never occurs" in holdfast("cron", "add", "0 0 31 2 *", "x").err
    assert "unknown time zone" in holdfast("cron", "add", "* * * * *", "x", "--timezone", "Mars").err
    assert "is not a chat" in holdfast("cron", "add", "* * * * *", "x", "--deliver", "nowhere").err
    assert (
        "[gateway.pigeon] is not configured" in holdfast("cron", "add", "* * * * *", "x", "--deliver", "pigeon:1").err
    )
    assert "the prompt is empty" in holdfast("cron", "add", "* * * * *", " ").err
    assert holdfast("cron", "remove", "cron-none").code == 3


def test_a_delayed_chat_is_shown_with_the_reason_and_the_time(holdfast: Holdfast, home: Path) -> None:
    from holdfast.store.repos import workers

    until = NOW + 3600 * 1_000_000

    def delay(tx: Transaction) -> None:
        who = workers.Identity(host="here", boot="b", pid=1, process_started="1")
        workers.register(tx, "worker-1", "serve", who, version="1", at=NOW)
        platforms.take(tx, "telegram", "worker-1", at=NOW)
        for number in (1, 2):
            outbox.put(tx, f"out-{number}", Address("telegram", "42"), OutboundMessage(text="hi"), at=NOW)
        outbox.begin(tx, "out-1", "worker-1")
        outbox.postpone(tx, "out-1", "429: slow down", due=until)

    write(home, delay)
    shown = holdfast("gateway", "status")
    [delayed] = holdfast("gateway", "status", "--json").json["delayed"]

    assert "telegram:42: 2 messages delayed until " in shown.out
    assert (delayed["chat"], delayed["waiting"], delayed["reason"]) == ("42", 2, "429: slow down")
