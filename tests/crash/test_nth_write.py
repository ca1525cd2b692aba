"""A real process is killed before each of its writes, fsyncs, truncations and deletions in turn."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import sampling
from tests.crash import strace
from tests.crash.output import heads
from tests.crash.reference import VARIANTS, Reference
from tests.crash.strace import CHANGING, NOT_USED, PHASES, Injection, Run
from tests.crash.verification import verify
from tests.crash.writer import DATABASE
from tests.sampling import every_nth

pytestmark = [pytest.mark.crash, pytest.mark.timeout(sampling.limit(10))]

KILLED = -9
WRITES = ("pwrite64", "write")
CASES = [
    *(("everything", phase) for phase in PHASES),
    *((variant, phase) for variant in ("checkpoints", "truncations") for phase in ("main", "close")),
]
"""All phases except opening, which is the same for every variant."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_call_that_changes_a_file_is_of_a_tested_kind_and_made_by_one_thread(
    variant: str, reference_of: Callable[[str], Reference]
) -> None:
    reference = reference_of(variant)
    threads = {(call.phase, call.name, call.thread) for call in reference.calls if call.name in (*CHANGING, "pread64")}
    kinds = Counter((phase, name) for phase, name, _ in threads)

    assert not {call.name for call in reference.calls} & set(NOT_USED)
    assert {"pwrite64", "fdatasync", "write"} <= {name for _, name in kinds}
    assert set(kinds.values()) == {1}


@pytest.mark.parametrize(
    ("variant", "moved"), [("everything", set()), ("checkpoints", {"pwrite64"}), ("truncations", {"pwrite64"})]
)
def test_the_checkpoint_variants_run_checkpoints_between_writes(
    variant: str, moved: set[str], reference_of: Callable[[str], Reference]
) -> None:
    main = [call for call in reference_of(variant).calls if call.phase == "main"]
    cut = {call.file for call in main if call.name == "ftruncate" and call.file.endswith("-wal")}

    assert {call.name for call in main if call.file.endswith(DATABASE) and call.name == "pwrite64"} == moved
    assert bool(cut) == (variant == "truncations")


@pytest.mark.parametrize(("variant", "phase"), CASES)
def test_a_process_killed_before_any_call_loses_nothing_it_acknowledged(
    variant: str, phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of(variant)
    rest = 1 if variant == "everything" else 3  # the other variants run checkpoints more often than real stores do
    tries = [
        (call, n)
        for call in CHANGING
        for n in every_nth(range(1, reference.count(phase, call) + 1), sampling.EVERY_WRITE if call in WRITES else rest)
    ]

    def die(call: str, n: int) -> Run:
        home = tmp_path / f"{call}-{n}"
        run = strace.run(home, reference.arguments, Injection(phase, call, f"signal=SIGKILL:when={n}"))
        check(reference, run, home)
        shutil.rmtree(home)
        return run

    runs = strace.side_by_side(die, tries)

    assert [(run.code, run.reached) for run in runs] == [(KILLED, phase)] * len(tries)


@pytest.mark.parametrize(("variant", "phase"), every_nth(CASES, 4))
def test_after_the_last_call_of_a_phase_there_is_no_further_one(
    variant: str, phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of(variant)

    def pass_by(call: str, n: int) -> Run:
        home = tmp_path / call
        return strace.run(home, reference.arguments, Injection(phase, call, f"signal=SIGKILL:when={n}"))

    runs = strace.side_by_side(pass_by, [(call, reference.count(phase, call) + 1) for call in CHANGING])

    assert phase not in [run.reached for run in runs]


def check(reference: Reference, run: Run, home: Path) -> None:
    """The store has everything acknowledged and at most the one write that was under way."""
    home.mkdir(mode=0o700, exist_ok=True)
    _, held = verify(home / DATABASE, heads(run.lines), may_be_gone=reference.may_be_gone(run))
    assert held in reference.may_hold(run), f"after {len(run.acknowledged)} acknowledgements"
