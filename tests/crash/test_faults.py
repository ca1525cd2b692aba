"""The kernel refuses a call once, or from some point on for ever: full disks and broken ones."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import effort, traced
from tests.crash.check import verify
from tests.crash.reference import Reference
from tests.crash.say import places
from tests.crash.traced import PHASES, Injection, Run
from tests.crash.writer import DATABASE, GIVEN_UP

pytestmark = [pytest.mark.crash, pytest.mark.timeout(effort.limit(10))]

CASES = [
    *(("pwrite64", error, phase) for error in ("ENOSPC", "EIO") for phase in ("open", "attach", "main", "close")),
    *(("fdatasync", "EIO", phase) for phase in ("open", "main", "close")),
    *(("ftruncate", "EIO", phase) for phase in ("open", "attach", "close")),
    ("unlink", "EIO", "open"),
]
"""Every kind of call in every phase that has it."""
MOVES = [("pwrite64", "ENOSPC"), ("pwrite64", "EIO"), ("fdatasync", "EIO"), ("ftruncate", "EIO")]
TOLD = "a commit of "
"""How the log begins to tell of a commit that failed for several at once and was tried again one by one."""
MOVED_LATER = "the checkpoint of "
HELD = {"ENOSPC": "DiskFull", "EIO": "IoFailed"}
REFUSABLE = {"pwrite64", "fdatasync", "ftruncate", "unlink"}
EVERY_CALL = "pwrite64,fdatasync,ftruncate,pread64"
UNREADABLE = {"IoFailed", "Corrupt"}
"""SQLite takes an EIO in a read for damage to the file system: https://sqlite.org/rescode.html#ioerr_corruptfs."""
STRIDE = 1 if effort.ROUNDS else 3
"""By default every third read or write in the phases that have many: they are much alike."""


def test_every_case_is_tried(reference_of: Callable[[str], Reference]) -> None:
    calls = {(call.name, call.phase) for call in reference_of("everything").calls}

    assert {(call, phase) for call, _, phase in CASES} == {one for one in calls if one[0] in REFUSABLE}


@pytest.mark.parametrize(("call", "error", "phase"), CASES)
def test_a_write_that_is_refused_once_is_told_leaves_nothing_and_succeeds_when_repeated(
    call: str, error: str, phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        watch = ["--states"] if phase == "main" else []
        injection = Injection(phase, call, f"error={error}:when={n}")
        run = traced.run(home, (*reference.arguments, "--retry", *watch), injection)
        assert_all_went_on(reference, run, home)
        if watch:
            assert_failures_left_nothing(reference, run)
            assert_told(run, error)
        return run

    runs = traced.side_by_side(refuse, [(n,) for n in range(1, reference.count(phase, call) + 1, step(call))])

    assert {len(run.injected) for run in runs} == {1}


@pytest.mark.parametrize("variant", ["checkpoints", "truncations"])
@pytest.mark.parametrize(("call", "error"), MOVES)
def test_a_refusal_while_the_wal_is_moved_harms_no_write(
    variant: str, call: str, error: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of(variant)
    calls = enumerate(reference.ordered("main", call), 1)
    moving = [n for n, one in calls if one.file.endswith(DATABASE) or call == "ftruncate"]

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        injection = Injection("main", call, f"error={error}:when={n}")
        run = traced.run(home, (*reference.arguments, "--retry"), injection)
        assert_all_went_on(reference, run, home)
        assert run.failed == []
        assert MOVED_LATER in run.complaints or call == "ftruncate", run
        return run

    runs = traced.side_by_side(refuse, [(n,) for n in moving[:: step(call)]])

    assert {len(run.injected) for run in runs} == {1}


@pytest.mark.parametrize("phase", PHASES)
def test_a_read_that_is_refused_once_is_told_and_succeeds_when_repeated(
    phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        run = traced.run(home, (*reference.arguments, "--retry"), Injection(phase, "pread64", f"error=EIO:when={n}"))
        assert_all_went_on(reference, run, home)
        assert {line["error"] for line in run.failed} <= UNREADABLE
        return run

    runs = traced.side_by_side(refuse, [(n,) for n in range(1, reference.count(phase, "pread64") + 1, STRIDE)])

    assert {len(run.injected) for run in runs} == {1}


@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_process_that_dies_after_a_refused_write_leaves_it_whole_or_not_at_all(
    call: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")
    some = 1 if call == "fdatasync" or effort.ROUNDS else 7

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        run = traced.run(home, reference.arguments, Injection("main", call, f"error=EIO:when={n}"))
        assert_holds(reference, reference.may_hold(run), run, home)
        return run

    runs = traced.side_by_side(refuse, [(n,) for n in range(1, reference.count("main", call) + 1, some)])

    assert {run.code for run in runs} <= {0, GIVEN_UP}
    assert GIVEN_UP in {run.code for run in runs}


@pytest.mark.parametrize("error", HELD)
@pytest.mark.parametrize("phase", ["open", "attach", "main", "close"])
def test_a_disk_that_stays_broken_fails_every_write_by_name_and_hangs_nobody(
    phase: str, error: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of("everything")
    count = reference.count(phase, "pwrite64")
    some = 1 if effort.ROUNDS else max(1, count // 8)

    def refuse(n: int) -> Run:
        home = tmp_path / f"{n}"
        arguments = (*reference.arguments, "--retry")
        run = traced.run(home, arguments, Injection(phase, EVERY_CALL, f"error={error}:when={n}+"))
        assert_holds(reference, reference.may_hold(run), run, home)
        return run

    runs = traced.side_by_side(refuse, [(n,) for n in range(1, count + 1, some)])

    ends = {(run.code, len(run.failed)) for run in runs}
    assert ends == {(0, 0) if phase == "close" else (GIVEN_UP, 2)}


def step(call: str) -> int:
    return STRIDE if call == "pwrite64" else 1


def assert_all_went_on(reference: Reference, run: Run, home: Path) -> None:
    """The same process got through, and the store is what it is when nothing happens."""
    assert (run.code, run.reached) == (0, "end"), run
    assert [line["ack"] for line in run.acknowledged] == reference.steps
    assert_holds(reference, reference.states[-1:], run, home)


def assert_holds(reference: Reference, states: list[str], run: Run, home: Path) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    _, held = verify(home / DATABASE, places(run.lines), may_be_gone=reference.may_be_gone(run))
    assert held in states, run
    shutil.rmtree(home)


def assert_failures_left_nothing(reference: Reference, run: Run) -> None:
    """After each step the store held what it should, and after a failed one what it had held before."""
    before = ""
    for line in run.lines:
        if "failed" in line:
            assert line.get("state", before) == before, run
        elif "ack" in line:
            before = str(line["state"])
    assert [line["state"] for line in run.acknowledged] == reference.states


def assert_told(run: Run, error: str) -> None:
    """The one who wrote was told by name; when several shared the commit, the log was, and each was tried alone."""
    [refused] = run.injected
    if DATABASE in refused.file:
        assert len(run.failed) == (0 if TOLD in run.complaints else 1), run
        assert {line["error"] for line in run.failed} <= {HELD[error]}, run
    else:  # SQLite does not rely on the sync of a folder
        assert refused.name == "fdatasync", run
