"""A real process is killed before each of its writes, fsyncs, truncations and deletions in turn."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import effort, traced
from tests.crash.check import verify
from tests.crash.reference import VARIANTS, Reference
from tests.crash.say import places
from tests.crash.traced import CHANGING, NOT_USED, PHASES, Injection, Run
from tests.crash.writer import DATABASE

pytestmark = [pytest.mark.crash, pytest.mark.timeout(effort.limit(10))]

KILLED = -9
STRIDE = 1 if effort.ROUNDS else 3
"""By default every third call of the variants that move the WAL more often than people's stores do."""
CASES = [
    *(("everything", phase) for phase in PHASES),
    *((variant, phase) for variant in ("checkpoints", "truncations") for phase in ("main", "close")),
]
"""All but the opening, which is the same whatever is written afterwards."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_call_that_changes_a_file_is_of_a_kind_that_is_tried_and_has_one_thread(
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
def test_the_wal_is_moved_into_the_file_in_the_midst_of_the_variants_that_are_for_it(
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
    step = STRIDE if variant != "everything" else 1
    tries = [(call, n) for call in CHANGING for n in range(1, reference.count(phase, call) + 1, step)]

    def die(call: str, n: int) -> Run:
        home = tmp_path / f"{call}-{n}"
        run = traced.run(home, reference.arguments, Injection(phase, call, f"signal=SIGKILL:when={n}"))
        check(reference, run, home)
        shutil.rmtree(home)
        return run

    runs = traced.side_by_side(die, tries)

    assert [(run.code, run.reached) for run in runs] == [(KILLED, phase)] * len(tries)


@pytest.mark.parametrize(("variant", "phase"), CASES)
def test_behind_the_last_call_of_a_phase_there_is_none_left_to_die_at(
    variant: str, phase: str, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = reference_of(variant)

    def pass_by(call: str, n: int) -> Run:
        home = tmp_path / call
        return traced.run(home, reference.arguments, Injection(phase, call, f"signal=SIGKILL:when={n}"))

    runs = traced.side_by_side(pass_by, [(call, reference.count(phase, call) + 1) for call in CHANGING])

    assert phase not in [run.reached for run in runs]


def check(reference: Reference, run: Run, home: Path) -> None:
    """The store holds what was acknowledged and at most the one write that was under way."""
    home.mkdir(mode=0o700, exist_ok=True)
    _, held = verify(home / DATABASE, places(run.lines), may_be_gone=reference.may_be_gone(run))
    assert held in reference.may_hold(run), f"after {len(run.acknowledged)} acknowledgements"
