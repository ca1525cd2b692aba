"""The identity of a process, whether it still runs, and when silence means death."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine.liveness.janitor import SeenHeartbeat, classify_worker
from holdfast.process_lookup import ProcessState, check_process, current_identity, is_stopped
from holdfast.store.repos.workers import Identity, Worker

STALE = 90.0
HOUR = 3600.0
DAY_OF_MICROS = 86_400_000_000
OURS = current_identity()


def told(other: Identity, **changes: object) -> Identity:
    return msgspec.structs.replace(other, **changes)


def field_of_stat(pid: int, place: int) -> str:
    """A field of /proc/PID/stat, counted from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[place]


def who(pid: int) -> Identity:
    return told(OURS, pid=pid, process_started=field_of_stat(pid, 19))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


# identity


def stop_child(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGSTOP)
    while field_of_stat(child.pid, 0) != "T":
        time.sleep(0.01)


@pytest.mark.process
def test_a_stopped_process_is_alive_and_reported_as_stopped_at_once(child: subprocess.Popen[bytes]) -> None:
    theirs = who(child.pid)
    assert not is_stopped(theirs, OURS)
    stop_child(child)

    verdict = classify_worker(worker(theirs), SeenHeartbeat(1, 0.0), OURS, monotonic=0.0, stale_seconds=STALE)

    assert (check_process(theirs, OURS), verdict.state) == ("alive", "stopped")
    assert f"kill -CONT {child.pid}" in verdict.evidence
    child.send_signal(signal.SIGCONT)
    while field_of_stat(child.pid, 0) == "T":
        time.sleep(0.01)
    assert not is_stopped(theirs, OURS)


@pytest.mark.process
def test_promise_10_a_stopped_process_does_not_count_as_dead(child: subprocess.Popen[bytes]) -> None:
    theirs = who(child.pid)
    stop_child(child)

    verdict = classify_worker(worker(theirs), SeenHeartbeat(1, 0.0), OURS, monotonic=10 * HOUR, stale_seconds=STALE)

    assert verdict.state == "stopped"


def test_the_identity_of_a_process_does_not_change() -> None:
    assert current_identity() == current_identity()
    assert (current_identity().pid, current_identity().process_started) == (os.getpid(), field_of_stat(os.getpid(), 19))


def test_this_process_is_alive() -> None:
    assert check_process(current_identity(), OURS) == "alive"


@pytest.mark.process
def test_a_child_is_alive_until_it_has_died(child: subprocess.Popen[bytes]) -> None:
    theirs = who(child.pid)
    before = check_process(theirs, OURS)
    child.kill()
    child.wait()

    assert (before, check_process(theirs, OURS)) == ("alive", "gone")


@pytest.mark.process
def test_a_zombie_child_is_gone(child: subprocess.Popen[bytes]) -> None:
    theirs = who(child.pid)
    child.kill()
    end = time.monotonic() + 10
    while field_of_stat(child.pid, 0) != "Z" and time.monotonic() < end:
        time.sleep(0.01)

    assert field_of_stat(child.pid, 0) == "Z"
    assert check_process(theirs, OURS) == "gone"


@pytest.mark.process
def test_a_process_name_that_looks_like_a_proc_line_is_parsed(tmp_path: Path) -> None:
    odd = tmp_path / "x) Z 1 (y"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "300"])
    try:
        assert check_process(who(process.pid), OURS) == "alive"
    finally:
        process.kill()
        process.wait()


ELSEWHERE_OR_GONE: list[tuple[str, Identity, ProcessState]] = [
    ("a pid that another process of this boot has now", told(OURS, process_started="1"), "gone"),
    ("a pid that nobody has", told(OURS, pid=2**22 + 1), "gone"),
    ("an earlier boot of this machine", told(OURS, boot="another-boot pid:[1]"), "gone"),
    ("an earlier boot, with our pid and start time again", told(OURS, boot=f"another {OURS.boot.split()[1]}"), "gone"),
    ("another pid space of this boot", told(OURS, boot=f"{OURS.boot.split()[0]} pid:[1]"), "elsewhere"),
    ("another machine", told(OURS, host="elsewhere"), "elsewhere"),
    ("another machine of the same name", told(OURS, host=OURS.host.split("#")[0] + "#other"), "elsewhere"),
    ("another machine in another boot", told(OURS, host="elsewhere", boot="another"), "elsewhere"),
]


@pytest.mark.parametrize(
    ("other", "expected"), [row[1:] for row in ELSEWHERE_OR_GONE], ids=[row[0] for row in ELSEWHERE_OR_GONE]
)
def test_the_state_of_a_process(other: Identity, expected: ProcessState) -> None:
    assert check_process(other, OURS) == expected


# classification

HERE = OURS
GONE = told(OURS, process_started="1")
REBOOTED = told(OURS, boot="another-boot pid:[1]")
AWAY = told(OURS, host="elsewhere")


def worker(of: Identity, *, beat_at: int = 0, stalled_since: int | None = None) -> Worker:
    return Worker(
        *("worker-1", "test", of.host, of.boot, of.pid, of.process_started, "0"),
        started_at=0,
        beat=7,
        beat_at=beat_at,
        stalled_since=stalled_since,
        ended_at=None,
        end_reason=None,
    )


JUDGED: list[tuple[str, Worker, float, str]] = [
    ("a process of this machine that beats", worker(HERE), 1, "alive"),
    ("one that is there but has been silent", worker(HERE), STALE + 1, "silent"),
    ("one that was stopped for a day", worker(HERE), 24 * HOUR, "silent"),
    ("one whose event loop does not answer", worker(HERE, stalled_since=5), 1, "stalled"),
    ("one whose event loop has not answered for an hour", worker(HERE, stalled_since=5), HOUR, "stalled"),
    ("one that is gone, though it beat a moment ago", worker(GONE), 0, "dead"),
    ("one that is gone, with its event loop stalled", worker(GONE, stalled_since=5), 0, "dead"),
    ("one of an earlier boot", worker(REBOOTED), 0, "dead"),
    ("one of another machine that beats", worker(AWAY), 1, "alive"),
    ("one of another machine, at the limit", worker(AWAY), STALE, "alive"),
    ("one of another machine, behind the limit", worker(AWAY), STALE + 0.001, "dead"),
    ("one of another machine that slept for an hour", worker(AWAY), HOUR, "dead"),
    ("one of another machine whose event loop does not answer", worker(AWAY, stalled_since=5), 1, "stalled"),
    ("one of another machine, stalled and then silent", worker(AWAY, stalled_since=5), STALE + 1, "dead"),
]


@pytest.mark.parametrize("now", [0.0, 1e6], ids=["just started", "up for days"])
@pytest.mark.parametrize(("of", "silent", "state"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED])
def test_promise_10_a_worker_is_assessed_by_identity_and_silence(
    of: Worker, silent: float, state: str, now: float
) -> None:
    verdict = classify_worker(of, SeenHeartbeat(7, now - silent), OURS, monotonic=now, stale_seconds=STALE)

    assert verdict.state == state
    assert verdict.evidence, "every verdict has its evidence"


@pytest.mark.parametrize("days", [-1, 1, 400])
@pytest.mark.parametrize("of", [HERE, AWAY], ids=["here", "away"])
def test_promise_10_a_changed_wall_clock_decides_nothing(of: Identity, days: int) -> None:
    """No wall clock is used for a verdict; the times in the row are for display."""
    verdicts = {
        classify_worker(worker(of, beat_at=at), SeenHeartbeat(7, 0.0), OURS, monotonic=1.0, stale_seconds=STALE).state
        for at in (0, days * DAY_OF_MICROS)
    }

    assert verdicts == {"alive"}
