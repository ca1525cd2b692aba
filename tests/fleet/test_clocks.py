"""Machines whose clocks are an hour apart: the store's clock counts for what is due, and no clock for who may write."""

import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.model.times import MINUTE, SECOND, from_iso, micros
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.repos import schedules
from holdfast.store.repos.schedules import Schedule
from holdfast.store.server_clock import ServerClock
from tests.crash.programs import wait_until
from tests.fakes.clock import FakeClock
from tests.fleet.conftest import NewWorker
from tests.fleet.fleet import QUICK
from tests.fleet.test_takeover import ask

HOUR = 3600
FAR = 5 * MINUTE
"""Less than an hour on any machine."""


def fast_by(seconds: int) -> list[str]:
    """The environment of a program whose wall clock is ahead."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert found, "there is no libfaketime here: scripts/system-packages installs it"
    return [f"LD_PRELOAD={found[0]}", f"FAKETIME=+{seconds}s", "DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"]


def schedule(name: str, at: int) -> Schedule:
    return Schedule(name, "0 0 1 1 *", "UTC", f"It is time for {name}", None, None, "run", at, at)


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_promise_10_clocks_an_hour_apart_cause_nothing_early_nothing_idle_and_no_death(
    store: str, new_worker: NewWorker
) -> None:
    fast = new_worker("host-fast", store, environment=fast_by(HOUR), liveness=QUICK, api={"idle_minutes": 30})
    database = await open_postgres(store)
    now = SystemClock().now()
    await database.write(schedules.add, schedule("later", now + 30 * MINUTE))
    await database.write(schedules.add, schedule("now", now))
    wait_until(lambda: _slots(database, "now") == ["done"], "what is due")

    assert _slots(database, "later") == [], "it is not due for half an hour"
    right = new_worker("host-right", store, liveness=QUICK, api={"idle_minutes": 30})
    first = ask(right, "mine", "one")
    second = ask(fast, "mine", "two")
    third = ask(right, "mine", "three")
    with fast.http() as http:
        swept = http.post("/v1/janitor/sweep").json()
        session_id = first.headers["x-session-id"]
        session = http.get(f"/v1/sessions/{session_id}").json()
        events = http.get(f"/v1/sessions/{session_id}/events").json()["events"]
        workers = http.get("/v1/workers").json()["workers"]

    assert {answer.headers["x-session-id"] for answer in (first, second, third)} == {session_id}
    assert session["ended_at"] is None, "it was used just now"
    assert [action for action in swept["done"] if action["what"] in ("marked dead", "ended as idle")] == []
    assert {worker["state"] for worker in workers} == {"alive"}
    times = [from_iso(event["at"]) for event in events]
    assert all(later - earlier > -SECOND for earlier, later in pairwise(times)), times
    assert abs(times[-1] - SystemClock().now()) < FAR
    assert "3600 s ahead of the database server's, which is used" in (fast.home / "logs" / "holdfast.log").read_text()
    await database.close()


def _slots(database: PostgresDatabase, schedule_id: str) -> list[str]:
    return [slot.state for slot in database.read_from_thread(schedules.list_slots, schedule_id, 10)]


async def test_a_changed_clock_is_detected_and_latency_is_not_taken_for_a_difference(
    store: str,
) -> None:
    database = await open_postgres(store)
    own = FakeClock(micros(datetime(2020, 1, 1, tzinfo=UTC)))
    clock = ServerClock(own, database)

    await clock.read_server()
    assert abs(clock.now() - time.time_ns() // 1000) < FAR
    own.set_by(-HOUR)
    await clock.read_server()
    assert abs(clock.now() - time.time_ns() // 1000) < FAR

    real = ServerClock(SystemClock(), database)
    await real.read_server()
    settled = real.ahead
    for _ in range(5):
        await real.read_server()
    assert abs(real.ahead - settled) < SECOND
    await database.close()
