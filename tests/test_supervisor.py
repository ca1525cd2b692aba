"""Background tasks: restarted when they fail, logged once, counted, and shown."""

import asyncio
import logging
from contextlib import suppress

import pytest

from holdfast import supervisor as supervisors
from holdfast.supervisor import (
    DOWN_SECONDS,
    OVERDUE_SECONDS,
    Completed,
    Finished,
    Supervisor,
    decode_statuses,
    encode_statuses,
    list_down,
    until_set,
)
from holdfast.supervisor import BackgroundTask as Task
from tests.fakes.clock import FakeClock

TIMEOUT = 20.0
"""Seconds after which a test that waits for something gives up."""


class Pauses:
    """Sleeps by moving the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        self._clock.pass_seconds(seconds)
        await asyncio.sleep(0)


class Work:
    """Fails that many times, then completes a cycle and waits."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.done = asyncio.Event()

    async def __call__(self, completed: Completed) -> None:
        self.left -= 1
        if self.left >= 0:
            raise OSError(24, "Too many open files")
        completed()
        self.done.set()
        await asyncio.Event().wait()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_promise_26_a_task_that_fails_is_restarted_after_pauses_that_double_up_to_a_limit(
    clock: FakeClock,
) -> None:
    pauses = Pauses(clock)
    work = Work(failures=8)
    async with Supervisor(clock, sleep=pauses) as supervisor:
        supervisor.start("work", Task(work, 1))
        await work.done.wait()
        status = supervisor.statuses()[0]

    assert pauses.taken == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0])
    assert (status.state, status.failures, status.cycle_at) == ("running", 8, clock.now())
    assert status.error == "OSError: [Errno 24] Too many open files"


async def test_a_series_of_failures_is_logged_once_with_its_traceback(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(failures=5)
    with caplog.at_level(logging.ERROR):
        async with Supervisor(clock, sleep=Pauses(clock)) as supervisor:
            supervisor.start("work", Task(work, 1))
            await work.done.wait()

    assert caplog.text.count("task work failed") == 1
    assert caplog.text.count("Traceback") == 1


async def test_a_completed_cycle_ends_a_series_so_that_the_next_failure_is_logged_and_restarted_soon(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, runs, done = Pauses(clock), 0, asyncio.Event()

    async def work(completed: Completed) -> None:
        nonlocal runs
        runs += 1
        completed()
        if runs == 4:
            done.set()
            await asyncio.Event().wait()
        raise OSError("again")

    async with Supervisor(clock, sleep=pauses) as supervisor:
        supervisor.start("work", Task(work, 1))
        await done.wait()

    assert pauses.taken == [0.2, 0.2, 0.2]
    assert caplog.text.count("task work failed") == 3


async def test_a_task_that_returns_is_restarted_too(clock: FakeClock) -> None:
    runs, done = 0, asyncio.Event()

    async def work(completed: Completed) -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            done.set()
            await asyncio.Event().wait()

    async with Supervisor(clock, sleep=Pauses(clock)) as supervisor:
        supervisor.start("work", Task(work, 1))
        await done.wait()
        assert "must not return" in supervisor.statuses()[0].error


async def test_a_task_that_finishes_says_so_and_is_not_restarted(clock: FakeClock) -> None:
    async def work(completed: Completed) -> None:
        raise Finished("no other servers are set")

    async with Supervisor(clock) as supervisor:
        supervisor.start("fleet", Task(work, 1))
        while supervisor.statuses()[0].state != "ended":
            await asyncio.sleep(0)
        clock.pass_seconds(1000)
        status = supervisor.statuses()[0]

    assert (status.state, status.error, status.failures) == ("ended", "no other servers are set", 0)


async def test_promise_26_a_task_is_down_when_it_has_failed_for_long_without_a_completed_cycle(
    clock: FakeClock,
) -> None:
    report = Supervisor(clock).watch("work", every=1)
    report.failed(OSError("gone"))
    early = report.status().state
    clock.pass_seconds(DOWN_SECONDS + 1)
    late = report.status()
    report.completed()

    assert (early, late.state, report.status().state) == ("failing", "down", "running")
    assert list_down([late]) == [late]


async def test_a_periodic_task_is_down_when_its_next_cycle_is_overdue(clock: FakeClock) -> None:
    report = Supervisor(clock).watch("work", every=10)
    report.completed()
    clock.pass_seconds(10 + OVERDUE_SECONDS)
    early = report.status().state
    clock.pass_seconds(1)

    assert (early, report.status().state) == ("running", "down")


async def test_a_task_that_hangs_in_its_first_cycle_is_down_when_that_is_overdue(clock: FakeClock) -> None:
    begun = asyncio.Event()

    async def work(completed: Completed) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Supervisor(clock) as supervisor, supervisor.running({"work": Task(work, 10, late=600)}):
        await begun.wait()
        clock.pass_seconds(610)
        early = supervisor.statuses()[0].state
        clock.pass_seconds(1)
        late = supervisor.statuses()[0].state

    assert (early, late) == ("running", "down")


async def test_a_task_that_hangs_is_logged_once_until_it_completes_a_cycle(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    report = Supervisor(clock).watch("work", every=10)
    for _ in range(2):
        clock.pass_seconds(11 + OVERDUE_SECONDS)
        states = [report.status().state for _ in range(3)]
        report.completed()

    assert states == ["down"] * 3
    assert caplog.text.count("task work hangs") == 2


async def test_a_task_that_waits_until_it_is_needed_completes_cycles_meanwhile(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "IDLE_SECONDS", 0.001)
    wanted, cycles = asyncio.Event(), 0

    def completed() -> None:
        nonlocal cycles
        cycles += 1
        if cycles == 3:
            wanted.set()

    await until_set(wanted, completed)

    assert cycles == 3


async def test_closing_the_supervisor_ends_its_tasks(clock: FakeClock) -> None:
    ended = asyncio.Event()

    async def work(completed: Completed) -> None:
        try:
            completed()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Supervisor(clock) as supervisor:
        task = supervisor.start("work", Task(work, 1))
        while supervisor.statuses()[0].cycle_at is None:
            await asyncio.sleep(0)
    assert ended.is_set()
    assert task.cancelled()


async def test_a_task_that_fails_while_it_is_stopped_is_not_restarted(clock: FakeClock) -> None:
    starts = 0

    async def work(completed: Completed) -> None:
        nonlocal starts
        starts += 1
        completed()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("the connection is in use") from None

    async with asyncio.timeout(TIMEOUT), Supervisor(clock, sleep=lambda _: asyncio.sleep(0)) as supervisor:
        supervisor.start("work", Task(work, 1))
        await asyncio.sleep(0)
    assert starts == 1


async def test_a_task_that_loses_its_cancellation_stops_after_the_cycle(clock: FakeClock) -> None:
    async def work(completed: Completed) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            completed()

    async with asyncio.timeout(TIMEOUT), Supervisor(clock) as supervisor:
        task = supervisor.start("work", Task(work, 1))
        await asyncio.sleep(0)
    assert task.cancelled()


def test_stored_task_statuses_can_be_decoded(clock: FakeClock) -> None:
    report = Supervisor(clock).watch("work", every=1)
    report.failed(OSError("gone"))

    assert decode_statuses(encode_statuses([report.status()])) == [report.status()]
    assert decode_statuses('[{"of": "another release"}]') == []
    assert decode_statuses("") == []
