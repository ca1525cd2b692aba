"""A backup is complete and verified, or does not exist."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import Busy, Corrupt, Invalid
from holdfast.store.backup import backup, restore
from holdfast.store.repos import sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.seed import Seed
from tests.store.copies import files, heads, new_session, place
from tests.store.damage import execute


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home" / "holdfast.db")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def test_a_backup_is_one_private_file_with_everything_in_it(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.sessions(5, "hello \udc80", turns=3)

    done = backup.backup(seed.path, copy)

    assert heads(copy) == heads(seed.path)
    assert (done.report.sessions, done.report.events) == (5, 110)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert done.report.ok


def test_nothing_is_left_beside_a_backup(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()

    backup.backup(seed.path, copy)

    assert files(tmp_path) == ["copy.db", "home"]


async def test_a_backup_is_one_snapshot_of_a_store_that_others_write_to(tmp_path: Path, copy: Path) -> None:
    seed = Seed(tmp_path / "home" / "holdfast.db")
    database = await open_sqlite(seed.path)
    ids = [await database.write(new_session, seed) for _ in range(20)]
    stop = asyncio.Event()

    async def keep_writing() -> int:
        count = 0
        while not stop.is_set():
            await database.write(sessions.rename, ids[count % 20], f"title {count}", at=seed.clock.now())
            count += 1
        return count

    writer = asyncio.create_task(keep_writing())
    reports = [await asyncio.to_thread(backup.backup, seed.path, copy, replace=True) for _ in range(5)]
    stop.set()
    written = await writer
    await database.close()

    assert written > 5, "the writer was not blocked"
    assert all(done.report.ok and done.report.sessions == 20 for done in reports)


def test_an_existing_file_is_replaced_only_with_the_option(seed: Seed, copy: Path) -> None:
    seed.session()
    copy.write_text("mine")

    with pytest.raises(Invalid, match="--force"):
        backup.backup(seed.path, copy)
    assert copy.read_text() == "mine"

    backup.backup(seed.path, copy, replace=True)
    assert heads(copy) == heads(seed.path)


def test_a_pipe_or_a_device_is_never_replaced_by_a_backup(seed: Seed, tmp_path: Path) -> None:
    seed.session()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(Invalid, match="is a device, a pipe or a socket"):
        backup.backup(seed.path, tmp_path / "pipe", replace=True)

    assert (tmp_path / "pipe").is_fifo()


def test_a_name_that_is_not_utf8_is_refused(seed: Seed, tmp_path: Path) -> None:
    seed.session()
    name = tmp_path / "\udcff.db"

    with pytest.raises(Invalid, match="has a name that is not valid UTF-8"):
        backup.backup(seed.path, name)
    with pytest.raises(Invalid, match="has a name that is not valid UTF-8"):
        restore.restore(name, place(seed))


def test_the_store_is_never_its_own_backup(seed: Seed, tmp_path: Path) -> None:
    seed.session()
    (tmp_path / "link.db").symlink_to(seed.path)

    for target in (seed.path, tmp_path / "link.db"):
        with pytest.raises(Invalid, match="the store itself"):
            backup.backup(seed.path, target, replace=True)
    with pytest.raises(Invalid, match="the store itself"):
        restore.restore(tmp_path / "link.db", place(seed))


def test_a_damaged_store_gives_no_backup(seed: Seed, copy: Path, tmp_path: Path) -> None:
    session_id = seed.session()
    execute(seed.path, f"UPDATE event SET body = replace(body, 'hello', 'HELLO') WHERE session_id = '{session_id}'")

    with pytest.raises(Corrupt, match=f"was not saved.*{session_id}.*its hash does not match"):
        backup.backup(seed.path, copy)

    assert files(tmp_path) == ["home"]


def test_a_partial_file_of_a_killed_backup_does_not_block(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()
    (tmp_path / "copy.db.partial").write_bytes(b"half a page" * 1000)
    (tmp_path / "copy.db.partial-journal").write_bytes(b"half a journal" * 1000)

    backup.backup(seed.path, copy)

    assert files(tmp_path) == ["copy.db", "home"]


def test_two_backups_to_one_file_do_not_mix(seed: Seed, copy: Path) -> None:
    seed.session()

    with backup.open_exclusively(copy.with_name("copy.db.partial")), pytest.raises(Busy):
        backup.backup(seed.path, copy)


@pytest.mark.process
def test_a_full_disk_leaves_nothing_under_the_name(seed: Seed, tmp_path: Path) -> None:
    seed.session("x" * 50_000, turns=40)

    code = (
        "import resource, signal, sys; from pathlib import Path; from holdfast.store.backup import backup;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (500_000,) * 2);"
        "backup.backup(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, seed.path, tmp_path / "copy.db"], capture_output=True, check=False
    )

    assert b"holdfast.model.errors." in done.stderr and done.returncode == 1
    assert files(tmp_path) == ["home"]
