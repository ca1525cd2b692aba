"""Who a process is, what became of it, and when silence means death."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine.janitor import Seen, judge
from holdfast.identity import Fate, fate, identity
from holdfast.store.workers import Identity, Worker

STALE = 90.0
HOUR = 3600.0
DAY_OF_MICROS = 86_400_000_000
OURS = identity()


def told(other: Identity, **changes: object) -> Identity:
    return msgspec.structs.replace(other, **changes)


def field_of_stat(pid: int, place: int) -> str:
    """A field of the kernel's own account of a process, counted from its state on."""
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


def test_a_process_is_the_same_whenever_it_is_asked() -> None:
    assert identity() == identity()
    assert (identity().pid, identity().process_started) == (os.getpid(), field_of_stat(os.getpid(), 19))


def test_this_process_is_alive() -> None:
    assert fate(identity(), OURS) == "alive"


def test_a_child_is_alive_until_it_has_died(child: subprocess.Popen[bytes]) -> None:
    theirs = who(child.pid)
    before = fate(theirs, OURS)
    child.kill()
    child.wait()

    assert (before, fate(theirs, OURS)) == ("alive", "gone")


def test_a_child_that_is_dead_but_not_buried_by_its_parent_is_gone(child: subprocess.Popen[bytes]) -> None:
    theirs = who(child.pid)
    child.kill()
    end = time.monotonic() + 10
    while field_of_stat(child.pid, 0) != "Z" and time.monotonic() < end:
        time.sleep(0.01)

    assert field_of_stat(child.pid, 0) == "Z"
    assert fate(theirs, OURS) == "gone"


def test_a_name_that_looks_like_the_kernels_own_account_confuses_nobody(tmp_path: Path) -> None:
    odd = tmp_path / "x) Z 1 (y"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "300"])
    try:
        assert fate(who(process.pid), OURS) == "alive"
    finally:
        process.kill()
        process.wait()


ELSEWHERE_OR_GONE: list[tuple[str, Identity, Fate]] = [
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
def test_what_became_of_a_process(other: Identity, expected: Fate) -> None:
    assert fate(other, OURS) == expected


# judgement

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
def test_promise_10_a_judgement_by_identity_and_silence(of: Worker, silent: float, state: str, now: float) -> None:
    verdict = judge(of, Seen(7, now - silent), OURS, monotonic=now, stale_seconds=STALE)

    assert verdict.state == state
    assert verdict.evidence, "every judgement says how it was come to"


@pytest.mark.parametrize("days", [-1, 1, 400])
@pytest.mark.parametrize("of", [HERE, AWAY], ids=["here", "away"])
def test_promise_10_a_clock_that_was_set_decides_nothing(of: Identity, days: int) -> None:
    """There is no wall clock among what a judgement is made from; the times in the row are for people."""
    verdicts = {
        judge(worker(of, beat_at=at), Seen(7, 0.0), OURS, monotonic=1.0, stale_seconds=STALE).state
        for at in (0, days * DAY_OF_MICROS)
    }

    assert verdicts == {"alive"}
