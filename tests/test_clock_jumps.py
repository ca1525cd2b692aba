"""A wall clock that jumps is not followed before it has proved stable, in one process and across restarts."""

import logging
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import (
    SETTLE_SECONDS,
    TOLERANCE,
    BootTime,
    ClockBelief,
    ClockJump,
    SystemClock,
    WatchedClock,
    boot_id,
    update_belief,
)
from holdfast.model.times import DAY, SECOND
from holdfast.store.repos import meta
from holdfast.store.server_clock import KEY, LocalClock, SavedClock, clock_warning, load_saved_belief
from holdfast.store.sqlite.driver import open_sqlite
from tests.fakes.clock import FakeClock

DAYS = 86_400.0


def watched(own: FakeClock) -> WatchedClock:
    clock = WatchedClock(own, own.monotonic)
    clock.now()
    return clock


@pytest.mark.parametrize("by", [2 * DAYS, 400 * DAYS, -2 * DAYS, 120.0])
def test_a_jump_that_is_reverted_never_shows_and_is_logged_once(by: float, caplog: pytest.LogCaptureFixture) -> None:
    own = FakeClock()
    clock, start = watched(own), own.now()
    own.set_by(by)
    with caplog.at_level(logging.WARNING):
        for second in range(1, 34):
            own.pass_seconds(1)
            assert clock.now() == start + second * SECOND
        assert clock.watch.untrusted_seconds == by
        own.set_by(-by)

    assert clock.now() == start + 33 * SECOND
    assert clock.watch.untrusted_seconds == 0
    assert clock.watch.jumps == 1
    assert caplog.records[0].message.startswith("the system clock jumped")
    assert len(caplog.records) == 2


def test_a_clock_that_keeps_its_new_time_is_trusted_in_the_end() -> None:
    own = FakeClock()
    clock = watched(own)
    own.set_by(2 * DAYS)
    clock.now()
    own.pass_seconds(SETTLE_SECONDS - 1)
    assert clock.now() == own.now() - 2 * DAY
    own.pass_seconds(1)

    assert clock.now() == own.now()
    assert clock.watch.last == ClockJump("accepted", 2 * DAYS)


def test_a_small_correction_is_followed_at_once() -> None:
    own = FakeClock()
    clock = watched(own)
    own.set_by(TOLERANCE / SECOND)

    assert clock.now() == own.now()
    assert clock.watch.jumps == 0


def test_a_second_jump_restarts_the_wait() -> None:
    belief, _ = update_belief(ClockBelief(0), 2 * DAY, 0.0)
    again, jump = update_belief(belief, 3 * DAY + 500 * SECOND, 500.0)

    assert jump == ClockJump("jumped", 3 * DAYS)
    assert update_belief(again, 3 * DAY + 700 * SECOND, 700.0) == (again, None)


async def test_a_program_that_starts_while_the_clock_is_wrong_uses_the_stored_belief(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    boot, elapsed, own = boot_id(), BootTime(), SystemClock()
    assert boot is not None
    two_days_back = ClockBelief(own.now() - int(elapsed() * SECOND) - 2 * DAY)
    await database.write(meta.put, KEY, msgspec.json.encode(SavedClock(boot, two_days_back)).decode())
    clock = await LocalClock.open(database)
    warned = await database.read(clock_warning)
    later = await LocalClock.open(database)
    saved = await database.read(load_saved_belief, boot)

    assert abs(clock.now() - (own.now() - 2 * DAY)) < TOLERANCE
    assert abs(later.now() - (own.now() - 2 * DAY)) < TOLERANCE
    assert saved is not None
    assert saved.other is not None, "how long the clock has kept its new time is counted across processes"
    assert warned is not None
    assert "has jumped" in warned
    await database.close()


async def test_a_belief_from_before_a_reboot_is_ignored(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    kept = SavedClock("another boot", ClockBelief(0))
    await database.write(meta.put, KEY, msgspec.json.encode(kept).decode())
    clock = await LocalClock.open(database)

    assert abs(clock.now() - SystemClock().now()) < TOLERANCE
    assert clock.watch.jumps == 0
    assert await database.read(clock_warning) is None
    await database.close()


async def test_a_belief_is_saved_once_and_whenever_it_changes(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    own = FakeClock()
    clock = LocalClock(own, database, "boot", None)
    clock.now()
    await clock.save()
    first = await database.read(load_saved_belief, "boot")
    own.set_by(2 * DAYS)
    clock.now()
    await clock.save()
    second = await database.read(load_saved_belief, "boot")

    assert first is not None
    assert second is not None
    assert (first.other, second.other is None, second.offset) == (None, False, first.offset)
    await database.close()
