"""A system call fails once, or every time from some point on: full and broken disks."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests import sampling
from tests.crash import strace
from tests.crash.output import heads
from tests.crash.reference import Reference
from tests.crash.strace import PHASES, Injection, Run
from tests.crash.verification import verify
from tests.crash.writer import DATABASE, GIVEN_UP
from tests.sampling import every_nth

pytestmark = [pytest.mark.crash, pytest.mark.timeout(sampling.limit(10))]

CASES = [
    *(("pwrite64", error, phase) for error in ("ENOSPC", "EIO") for phase in ("open", "attach", "main", "close")),
    *(("fdatasync", "EIO", phase) for phase in ("open", "main", "close")),
    *(("ftruncate", "EIO", phase) for phase in ("open", "attach", "close")),
    ("unlink", "EIO", "open"),
]
"""Every kind of call in every phase in which it occurs."""
MOVES = [("pwrite64", "ENOSPC"), ("pwrite64", "EIO"), ("fdatasync", "EIO"), ("ftruncate", "EIO")]
TOLD = "a commit of "
"""The start of the log line about a shared commit that failed and was retried one write at a time."""
MOVED_LATER = "the checkpoint of "
HELD = {"ENOSPC": "DiskFull", "EIO": "IoFailed"}
REFUSABLE = {"pwrite64", "fdatasync", "ftruncate", "unlink"}
EVERY_CALL = "pwrite64,fdatasync,ftruncate,pread64"
UNREADABLE = {"IoFailed", "Corrupt"}
"""SQLite reports an EIO in a read as damage of the file system: https://sqlite.org/rescode.html#ioerr_corruptfs."""


def test_every_case_is_covered(reference_of: Callable[[str], Reference]) -> None:
    calls = {(call.name, call.phase) for call in reference_of("everything").calls}

    assert {(call, phase) for call, _, phase in CASES} == {one for one in calls if one[0] in REFUSABLE}


@pytest.mark.parametrize(("call", "error", "phase"), CASES)
def test_a_write_that_fails_once_is_reported_leaves_nothing_and_succeeds_when_repeated(
    call: str, error: str, phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        watch = ["--states"] if phase == "main" else []
        injection = Injection(phase, call, f"error={error}:when={n}")
        run = strace.run(home, (*reference.arguments, "--retry", *watch), injection)
        assert_completed(reference, run, home)
        if watch:
            assert_failures_left_nothing(reference, run)
            assert_reported(run, error)
        return run

    runs = strace.side_by_side(refuse, [(n,) for n in some(range(1, reference.count(phase, call) + 1), call, error)])

    assert {len(run.injected) for run in runs} == {1}


@pytest.mark.parametrize("variant", ["checkpoints", "truncations"])
@pytest.mark.parametrize(("call", "error"), MOVES)
def test_an_error_during_a_checkpoint_affects_no_write(
    variant: str, call: str, error: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of(variant)
    calls = enumerate(reference.ordered("main", call), 1)
    moving = [n for n, one in calls if one.file.endswith(DATABASE) or call == "ftruncate"]

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        injection = Injection("main", call, f"error={error}:when={n}")
        run = strace.run(home, (*reference.arguments, "--retry"), injection)
        assert_completed(reference, run, home)
        assert run.failed == []
        assert MOVED_LATER in run.stderr or call == "ftruncate", run
        return run

    runs = strace.side_by_side(refuse, [(n,) for n in some(moving, call, error)])

    assert {len(run.injected) for run in runs} == {1}


@pytest.mark.parametrize("phase", PHASES)
def test_a_read_that_fails_once_is_reported_and_succeeds_when_repeated(
    phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        run = strace.run(home, (*reference.arguments, "--retry"), Injection(phase, "pread64", f"error=EIO:when={n}"))
        assert_completed(reference, run, home)
        assert {line["error"] for line in run.failed} <= UNREADABLE
        return run

    runs = strace.side_by_side(
        refuse, [(n,) for n in every_nth(range(1, reference.count(phase, "pread64") + 1), 2 * sampling.EVERY_WRITE)]
    )

    assert {len(run.injected) for run in runs} == {1}


@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_process_killed_after_a_failed_write_leaves_all_or_nothing_of_it(
    call: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")
    step = 3 if call == "fdatasync" else 2 * sampling.EVERY_WRITE

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        run = strace.run(home, reference.arguments, Injection("main", call, f"error=EIO:when={n}"))
        assert_holds(reference, reference.may_hold(run), run, home)
        return run

    runs = strace.side_by_side(refuse, [(n,) for n in every_nth(range(1, reference.count("main", call) + 1), step)])

    assert {run.code for run in runs} <= {0, GIVEN_UP}
    assert GIVEN_UP in {run.code for run in runs}


@pytest.mark.parametrize("error", HELD)
@pytest.mark.parametrize("phase", ["open", "attach", "main", "close"])
def test_a_broken_disk_fails_every_write_with_a_named_error_and_nothing_hangs(
    phase: str, error: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")
    count = reference.count(phase, "pwrite64")

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        arguments = (*reference.arguments, "--retry")
        run = strace.run(home, arguments, Injection(phase, EVERY_CALL, f"error={error}:when={n}+"))
        assert_holds(reference, reference.may_hold(run), run, home)
        return run

    runs = strace.side_by_side(refuse, [(n,) for n in every_nth(range(1, count + 1), max(1, count // 3))])

    ends = {(run.code, len(run.failed)) for run in runs}
    assert ends == {(0, 0) if phase == "close" else (GIVEN_UP, 2)}


def some(calls: Sequence[int], call: str, error: str) -> Sequence[int]:
    """Every sixteenth write, alternating between ENOSPC and EIO; every call of another kind."""
    if call != "pwrite64":
        return calls
    first = sampling.EVERY_WRITE if error == "EIO" else 0
    return every_nth(calls, 2 * sampling.EVERY_WRITE, first=first)


def assert_completed(reference: Reference, run: Run, home: Path) -> None:
    """The same process completed, and the store equals that of a run without faults."""
    assert (run.code, run.reached) == (0, "end"), run
    assert [line["ack"] for line in run.acknowledged] == reference.steps
    assert_holds(reference, reference.states[-1:], run, home)


def assert_holds(reference: Reference, states: list[str], run: Run, home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    _, held = verify(home / DATABASE, heads(run.lines), may_be_gone=reference.may_be_gone(run))
    assert held in states, run
    shutil.rmtree(home)


def assert_failures_left_nothing(reference: Reference, run: Run) -> None:
    """After each step the store had the expected content, and after a failed one its previous content."""
    before = ""
    for line in run.lines:
        if "failed" in line:
            assert line.get("state", before) == before, run
        elif "ack" in line:
            before = str(line["state"])
    assert [line["state"] for line in run.acknowledged] == reference.states


def assert_reported(run: Run, error: str) -> None:
    """The caller got a named error. If several writes shared the commit, the log has a line, and each was retried alone."""
    [refused] = run.injected
    if DATABASE in refused.file:
        assert len(run.failed) == (0 if TOLD in run.stderr else 1), run
        assert {line["error"] for line in run.failed} <= {HELD[error]}, run
    else:  # SQLite does not depend on the fsync of a folder
        assert refused.name == "fdatasync", run
