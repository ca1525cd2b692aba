"""A real server whose system clock jumps (libfaketime): schedules continue at the true time."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.model.times import MINUTE
from holdfast.store.repos import schedules
from holdfast.store.repos.schedules import Schedule, ScheduleSlot
from holdfast.store.sqlite.driver import open_sqlite
from tests.crash.programs import ROOT, Process, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]
AHEAD = ["+2d", "+400d"]


def faked(shift: Path | str) -> list[str]:
    """The environment of a program whose wall clock is shifted: by a fixed time, or by what a file says at the moment.

    Under libfaketime `time.sleep` sometimes fails with EINVAL. SQLite's busy handler sleeps while another process opens
    or closes the store, so tests open it only after the shifted server has started.
    """
    [library, *_] = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    where = f"FAKETIME_TIMESTAMP_FILE={shift}" if isinstance(shift, Path) else f"FAKETIME={shift}"
    return [
        "env",
        f"LD_PRELOAD={library}",
        where,
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "NO_FAKE_STAT=1",
    ]


def holdfast(home: Path, *words: str, clock: list[str] | None = None) -> list[str]:
    return [*(clock or []), sys.executable, "-m", "holdfast", "--home", str(home), *words]


def said(home: Path, *words: str, clock: list[str] | None = None) -> str:
    done = subprocess.run(holdfast(home, *words, clock=clock), cwd=ROOT, capture_output=True, check=True, timeout=60)
    return done.stdout.decode()


def settle(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('model = "scripted:echo"\n[agent]\ntitles = false\n')


def add(home: Path, clock: list[str] | None = None) -> None:
    said(home, "cron", "add", "* * * * *", "What is new?", clock=clock)


def serving(home: Path, clock: list[str] | None = None) -> Process:
    return Process(*holdfast(home, "serve", "--port", "0", clock=clock))


def log_of(home: Path) -> str:
    path = home / "logs" / "holdfast.log"
    return path.read_text() if path.exists() else ""


async def stored(home: Path) -> tuple[Schedule, list[ScheduleSlot]]:
    database = await open_sqlite(home / "holdfast.db")
    [schedule] = await database.read(schedules.list_all)
    slots = await database.read(schedules.list_slots, schedule.id, 10_000)
    await database.close()
    return schedule, slots


def next_at(home: Path) -> int:
    """When the schedule is due next, as a program with the right clock reads it."""
    [shown] = json.loads(said(home, "cron", "list", "--json"))["schedules"]
    from holdfast.model.times import from_iso

    return from_iso(shown["next_at"])


def now() -> int:
    return time.time_ns() // 1000


@pytest.mark.parametrize("ahead", AHEAD)
async def test_a_server_whose_clock_jumps_keeps_its_schedules(tmp_path: Path, ahead: str) -> None:
    home, shift = tmp_path / "home", tmp_path / "shift"
    settle(home)
    shift.write_text("+0")
    with serving(home, faked(shift)) as server:
        wait_until(lambda: bool(server.stdout), "the server")
        shift.write_text(ahead)
        wait_until(lambda: "the system clock jumped" in log_of(home), "that the jump is seen")
        add(home, faked(shift))  # a program without a reference computes a wrong time
        wait_until(lambda: next_at(home) <= now() + MINUTE, "that the schedule is set back", every=0.2)
        shift.write_text("+0")
        wait_until(lambda: "the system clock is right again" in log_of(home), "that the return is seen")
        server.interrupt()

    schedule, slots = await stored(home)
    assert schedule.next_at <= now() + MINUTE
    assert [slot for slot in slots if slot.state == "missed" or slot.due_at > now()] == []


@pytest.mark.parametrize("ahead", AHEAD)
async def test_after_a_server_with_a_wrong_clock_the_next_one_sets_the_schedule_back(
    tmp_path: Path, ahead: str
) -> None:
    home = tmp_path / "home"
    settle(home)
    add(home)
    with serving(home, faked(ahead)) as server:
        wait_until(lambda: bool(server.stdout), "the server")
        wait_until(lambda: next_at(home) > now() + MINUTE, "that the false time moves the schedule", every=0.2)
        server.interrupt()
    with serving(home) as server:
        wait_until(lambda: next_at(home) <= now() + MINUTE, "that the schedule is set back", every=0.2)
        server.interrupt()

    _, slots = await stored(home)
    passed_over = [slot for slot in slots if slot.state in ("missed", "skipped")]
    assert [slot for slot in passed_over if max(slot.due_at, slot.began_at) > now()] == []
