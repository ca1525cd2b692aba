"""Servers killed again and again: turns that wait for the model finish later, a turn that kills its server is quarantined."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.model.event import ModelSaid, Quarantined, Recovered, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.store.database import Transaction
from holdfast.store.repos import log, schedules, sessions
from holdfast.store.repos.schedules import Schedule
from holdfast.store.sqlite.driver import open_sqlite
from tests.api import native_client
from tests.api.native_client import begin, say, wait_for_end
from tests.api.serving import Server
from tests.crash.programs import wait_until
from tests.engine.well_formed import assert_well_formed
from tests.sampling import KILLS

T = TypeVar("T")
TURNS = 6
SLOTS = 5
HANGS = {"steps": [{"hang": True}], "loop": True}
ANSWERS = {"steps": [{"say": "Here at last."}], "loop": True}
HOUR = 3_600_000_000


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as running:
        yield running


def in_store(own: Server, work: Callable[[Transaction], T], *, write: bool = False) -> T:
    async def run() -> T:
        database = await open_sqlite(own.home / "holdfast.db")
        try:
            return await (database.write(work) if write else database.read(work))
        finally:
            await database.close()

    return asyncio.run(run())


def write_script(own: Server, name: str, script: object) -> str:
    (own.home / f"{name}.json").write_text(json.dumps(script))
    return f"scripted:{own.home}/{name}.json"


def schedule_slots(own: Server, model: str) -> None:
    """Add schedules that are due now and not again for a long time."""
    now = time.time_ns() // 1000

    def work(tx: Transaction) -> None:
        for number in range(SLOTS):
            schedules.add(
                tx, Schedule(f"cron-{number}", "0 0 29 2 *", "UTC", f"Slot {number}", None, model, "run", now, now)
            )

    in_store(own, work, write=True)


def slots(own: Server) -> list[str]:
    def work(tx: Transaction) -> list[str]:
        return [slot.state for number in range(SLOTS) for slot in schedules.list_slots(tx, f"cron-{number}", 10)]

    return in_store(own, work)


@pytest.mark.crash
@pytest.mark.timeout(180 + 20 * KILLS)
def test_turns_that_wait_for_the_model_survive_a_storm_of_kills(own: Server) -> None:
    chance = random.Random(18)
    model = write_script(own, "silent", HANGS)
    schedule_slots(own, model)
    own.kill()
    own.restart()
    with native_client.client(own) as http:
        waiting = [
            (session_id, say(http, session_id, "Go")) for session_id in (begin(http, model=model) for _ in range(TURNS))
        ]
    wait_until(lambda: len(slots(own)) == SLOTS, "the slots were begun")
    for number in range(KILLS):
        time.sleep(chance.uniform(0.0, 1.5))
        os.kill(own.process.pid, signal.SIGKILL)
        own.process.wait()
        if number == KILLS - 1:
            write_script(own, "silent", ANSWERS)
        own.restart()

    with native_client.client(own) as http:
        for session_id, turn_id in waiting:
            assert wait_for_end(http, session_id, turn_id)["state"] == "done"
            assert wait_for_end(http, session_id, say(http, session_id, "And?"))["state"] == "done"
    wait_until(lambda: set(slots(own)) == {"done"}, "every slot is done")
    deaths = [_check(own, session_id) for session_id, _ in waiting]
    print(
        f"{KILLS} kills; each of {TURNS} turns was recovered {min(deaths)} to {max(deaths)} times; slots: {slots(own)}"
    )


def _check(own: Server, session_id: str) -> int:
    """Check that the session has every message and reply once and is not quarantined; return its number of recoveries."""

    def work(tx: Transaction) -> list[object]:
        return [entry.event for entry in log.read_complete(tx, sessions.get(tx, session_id))]

    events = in_store(own, work)
    assert_well_formed(events)  # type: ignore[arg-type]
    assert not any(isinstance(event, Quarantined) for event in events)
    assert [text_of(event.parts) for event in events if isinstance(event, UserSaid)] == ["Go", "And?"]
    answers = [text_of(event.parts) for event in events if isinstance(event, ModelSaid) and not event.partial]
    assert answers == ["Here at last."] * 2
    assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["done", "done"]
    return sum(isinstance(event, Recovered) for event in events)


def restart_until_over(own: Server, session_id: str) -> int:
    """Kill the server each time its tool asks for it and restart it, until no turn is open; return the number of kills."""

    def is_over() -> bool:
        return in_store(own, lambda tx: sessions.get(tx, session_id)).summary.open_turn is None

    deaths, mark = 0, own.home.parent / "kill-me"
    while True:
        wait_until(lambda: mark.exists() or is_over(), "the tool kills the server or the turn ends", every=0.2)
        if not mark.exists():
            return deaths
        mark.unlink()
        own.kill()
        deaths += 1
        own.restart()


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_promise_27_only_the_turn_that_kills_its_server_is_quarantined_and_its_user_is_told(own: Server) -> None:
    config = own.home / "config.toml"
    config.write_text(config.read_text().replace("[agent]", '[agent]\napprovals = "allow"'))
    kill = {"call": [{"name": "terminal", "arguments": {"command": f"touch {own.home.parent}/kill-me; sleep 30"}}]}
    killer_model = write_script(own, "asks", {"steps": [kill], "loop": True})
    model = write_script(own, "silent", HANGS)
    own.kill()
    own.restart()
    with native_client.client(own) as http:
        waiting = [
            (session_id, say(http, session_id, "Go")) for session_id in (begin(http, model=model) for _ in range(3))
        ]
        killer = begin(http, model=killer_model)
        guilty = say(http, killer, "Kill it")
    deaths = restart_until_over(own, killer)
    with native_client.client(own) as http:
        ended = wait_for_end(http, killer, guilty)
        states = {native_client.turn(http, session_id, turn_id)["state"] for session_id, turn_id in waiting}
    write_script(own, "silent", ANSWERS)
    write_script(own, "asks", ANSWERS)
    own.kill()
    own.restart()
    with native_client.client(own) as http:
        for session_id, turn_id in waiting:
            assert wait_for_end(http, session_id, turn_id)["state"] == "done"
        assert wait_for_end(http, killer, say(http, killer, "And?"))["state"] == "done"

    assert ended["state"] == "failed"
    assert ended["code"] == "quarantined"
    assert "died 3 times in a row while it ran terminal" in ended["reason"]
    assert "no other turn at work" in ended["reason"]
    assert deaths == 3
    assert states == {"running"}
