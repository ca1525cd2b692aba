"""Backups and restores in real processes that are killed: a good store or backup stays good."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from holdfast.store.backup import backup, restore
from tests.cli.seed import Seed
from tests.crash import disk
from tests.crash.strace import need_strace
from tests.store.copies import heads, is_sound, place

pytestmark = pytest.mark.process


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home" / "holdfast.db")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


BACKUP = "from holdfast.store.backup import backup; backup.backup(Path(sys.argv[1]), Path(sys.argv[2]), replace=True)"
RESTORE = (
    "from holdfast.store.backup import restore;"
    "home = Path(sys.argv[1]);"
    "place = restore.RestoreTarget(store=home, home=home.parent, replace=True, alive=lambda worker: False, at=0);"
    "restore.restore(Path(sys.argv[2]), place)"
)


def run_until(nth: int, call: str, code: str, *args: Path | str) -> int:
    """Run the code and kill it at the nth such system call; returns its exit status."""
    need_strace()
    inject = f"inject={call}:signal=SIGKILL:when={nth}"
    program = [sys.executable, "-c", f"import sys; from pathlib import Path; {code}", *map(str, args)]
    return subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject, *program],
        check=False,
        capture_output=True,
    ).returncode


def moments(most: int) -> list[int]:
    """Each of the first calls, and then fewer and fewer."""
    return sorted({*range(1, 16), *(round(1.7**n) for n in range(2, 14) if 1.7**n <= most)})


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "fsync", "rename"])
def test_a_backup_killed_at_any_moment_leaves_the_last_good_one(seed: Seed, copy: Path, call: str) -> None:
    seed.sessions(10, "some words " * 200, turns=2)
    backup.backup(seed.path, copy)
    old, _ = heads(copy), seed.sessions(3)
    new = heads(seed.path)
    killed = 0
    for nth in moments(400):
        status = run_until(nth, call, BACKUP, seed.path, copy)
        found = heads(copy)
        assert found in (old, new)
        killed += status == -signal.SIGKILL or status == 128 + signal.SIGKILL
        if status == 0:
            assert found == new
            break
    backup.backup(seed.path, copy, replace=True)
    assert heads(copy) == new and backup.verify_file(copy, None, current=True).ok
    assert killed > 0 or call == "fdatasync", "the scenario makes such calls"


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "fsync", "ftruncate"])
def test_a_restore_killed_at_any_moment_leaves_the_old_store_or_the_new(seed: Seed, copy: Path, call: str) -> None:
    seed.sessions(10, "some words " * 200, turns=2)
    backup.backup(seed.path, copy)
    old, _ = heads(copy), seed.sessions(3)
    new = heads(seed.path)
    killed = 0
    for nth in moments(1500):
        status = run_until(nth, call, RESTORE, seed.path, copy)
        found = heads(seed.path)
        assert found in (old, new), f"after the {nth}. {call}"
        assert asyncio.run(is_sound(seed.path))
        killed += status == -signal.SIGKILL or status == 128 + signal.SIGKILL
        if status == 0:
            assert found == old
            break
        if found == old:  # it reached the commit: restore the newer one
            saved = max(seed.path.parent.glob("before-restore-*.db"), key=lambda path: len(heads(path)))
            restore.restore(saved, place(seed))
    restore.restore(copy, place(seed))
    assert heads(seed.path) == old
    assert killed > 0
    assert not list(seed.path.parent.glob("*.restoring*")), "no temporary file is left"


# Power cuts.

SLOWLY = (
    "import sys; from pathlib import Path; from holdfast.store.backup import backup, restore; backup.PAGES = 10;"
    "say = lambda *words: print(*words, flush=True);"
    "home = Path(sys.argv[1]);"
    "place = restore.RestoreTarget(store=home, home=home.parent, replace=True, alive=lambda worker: False, at=0);"
    "restore.restore(Path(sys.argv[2]), place, say); say('done')"
)


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", ["copying", "checking", "restoring", "done"])
def test_a_power_cut_during_a_restore_leaves_the_old_store_or_the_new(tmp_path: Path, stage: str) -> None:
    copy = tmp_path / "copy.db"
    with disk.mounted(48) as drive:
        seed = Seed(drive.home / "holdfast.db")
        seed.sessions(10, "some words " * 200, turns=2)
        backup.backup(seed.path, copy)
        old, _ = heads(copy), seed.sessions(3)
        new = heads(seed.path)

        with subprocess.Popen(
            [sys.executable, "-c", SLOWLY, seed.path, copy], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            assert child.stdout is not None
            seen = sum(1 for _ in _until(child.stdout, stage))
            drive.cut_power()
            child.kill()
        drive.unmount()
        drive.mount()

        found = heads(seed.path)
        assert seen > 0
        assert found == (old if stage == "done" else found)
        assert found in (old, new)
        assert asyncio.run(is_sound(seed.path))
        restore.restore(copy, place(seed))
        assert heads(seed.path) == old


def _until(lines: IO[bytes], stage: str) -> Iterator[bytes]:
    """The lines up to the third of this step, or all of them."""
    left = 3
    for line in lines:
        yield line
        left -= line.startswith(stage.encode())
        if left == 0:
            return
