"""The last bytes of the WAL did not reach the disk: it ends anywhere, truncated or with garbage."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import sampling
from tests.crash.programs import program
from tests.crash.reference import Reference
from tests.crash.verification import verify
from tests.crash.writer import DATABASE

pytestmark = [pytest.mark.crash, pytest.mark.timeout(sampling.limit(5))]

HEADER, FRAME = 32, 24 + 4096
"""Bytes: https://sqlite.org/fileformat2.html#walformat"""
STRIDE = 1 if sampling.ROUNDS else 3


@pytest.fixture
def died(reference_of: Callable[[str], Reference], tmp_path: Path) -> Path:
    """The home of a writer that was killed after its last write, with all writes in the WAL."""
    home = tmp_path / "died"
    with program("writer", home, "--gates", *reference_of("everything").arguments) as writer:
        for gate in range(1, 5):
            assert writer.wait_for_output('"gate"', times=gate), writer.stderr
            if gate < 4:
                writer.send("go")
        writer.kill()
    return home


@pytest.mark.parametrize("rubbish", [False, True])
def test_whatever_part_of_the_wal_survives_the_store_equals_its_state_after_some_step(
    rubbish: bool, died: Path, reference_of: Callable[[str], Reference], tmp_path: Path
) -> None:
    chance = random.Random(FRAME)
    states = reference_of("everything").states
    wal = (died / f"{DATABASE}-wal").read_bytes()
    frames = (len(wal) - HEADER) // FRAME
    found = []
    for number in range(0, frames + 1, STRIDE):
        end = min(len(wal), HEADER + number * FRAME + chance.choice([0, chance.randrange(FRAME)]))
        home = tmp_path / f"{number}"
        home.mkdir(mode=0o700)
        shutil.copy(died / DATABASE, home)
        tail = chance.randbytes(len(wal) - end) if rubbish else b""
        (home / f"{DATABASE}-wal").write_bytes(wal[:end] + tail)
        _, held = verify(home / DATABASE, [])
        assert held in states, f"cut at byte {end}"
        found.append(states.index(held))
        shutil.rmtree(home)

    assert found == sorted(found), "more WAL means more content"
    assert (found[0], len(set(found)) > len(states) // 2) == (0, True)
