"""Where a SQLite store may be, and who may read it."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.model.errors import Unsupported
from holdfast.store.sqlite import location
from holdfast.store.sqlite.driver import open_sqlite

LOCAL = """\
22 27 0:20 / /proc rw,nosuid - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:25 / /run rw shared:5 - tmpfs tmpfs rw,size=10M
31 27 0:26 / /var/lib/docker rw - overlay overlay rw,lowerdir=/a
"""


def mounted(point: str, kind: str) -> str:
    return f"{LOCAL}40 27 0:30 / {point} rw,relatime shared:1 - {kind} server:/share rw\n"


@pytest.fixture
def lax_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("lax_umask")
async def test_a_new_store_is_private_in_private_directories(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "home" / "holdfast.db"
    database = await open_sqlite(path)

    assert [mode(folder) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]
    assert {file.name: mode(file) for file in path.parent.iterdir()} == {
        "holdfast.db": 0o600,
        "holdfast.db-wal": 0o600,
        "holdfast.db-shm": 0o600,
    }
    await database.close()
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}


@pytest.mark.usefixtures("lax_umask")
async def test_a_store_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    await (await open_sqlite(path)).close()
    for file in tmp_path.iterdir():
        file.chmod(0o666)
    database = await open_sqlite(path)

    assert {mode(file) for file in tmp_path.iterdir()} == {0o600}
    await database.close()


async def test_existing_directories_are_left_unchanged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    await (await open_sqlite(home / "holdfast.db")).close()

    assert mode(home) == 0o755


def test_many_processes_may_prepare_the_same_path_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) / "not" / "there" / "yet" / "holdfast.db" for number in range(40)]
    start = threading.Barrier(6)

    def prepare_all(_: int) -> None:
        for path in paths:
            start.wait(10)
            location.prepare(path)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(prepare_all, range(6)))

    assert [mode(path) for path in paths] == [0o600] * len(paths)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
async def test_a_path_that_is_not_a_file_is_refused_and_left_unchanged(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "holdfast.db"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    path.chmod(0o755)

    with pytest.raises(Unsupported, match="not a regular file"):
        await open_sqlite(path)
    assert mode(path) == 0o755


async def test_a_store_behind_a_link_is_opened_at_its_target(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "holdfast.db", tmp_path / "link.db"
    await (await open_sqlite(real)).close()
    link.symlink_to(real)
    database = await open_sqlite(link)
    await database.close()

    assert link.is_symlink()
    assert not (tmp_path / "link.db-wal").exists()


# file systems


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "drvfs", "fuse.sshfs", "fuse.rclone", "fuse.s3fs"]
)
def test_a_network_file_system_is_refused_with_what_to_do_instead(kind: str) -> None:
    with pytest.raises(Unsupported) as caught:
        location.refuse_network(Path("/mnt/share/home/holdfast.db"), mounted("/mnt/share", kind))

    for hint in (kind, "/mnt/share/home/holdfast.db", "--home", "HOLDFAST_HOME", "HOLDFAST_STORE=postgresql://"):
        assert hint in str(caught.value)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "f2fs", "apfs", "fuse.gocryptfs"])
def test_a_local_file_system_is_accepted(kind: str) -> None:
    location.refuse_network(Path("/mnt/share/holdfast.db"), mounted("/mnt/share", kind))


@pytest.mark.parametrize(
    ("written", "real"),
    [
        (r"/mnt/my\040share", "/mnt/my share"),
        (r"/mnt/tab\011bed", "/mnt/tab\tbed"),
        (r"/mnt/two\012lines", "/mnt/two\nlines"),
        (r"/mnt/back\134slash", "/mnt/back\\slash"),
        (r"/mnt/back\134040", r"/mnt/back\040"),
        ("/mnt/größe", "/mnt/größe"),
        ("/mnt/日本\\040語", "/mnt/日本 語"),
        ("/mnt/\udcff\udcfe", "/mnt/\udcff\udcfe"),
    ],
)
def test_a_mount_point_with_escaped_characters_is_parsed(written: str, real: str) -> None:
    assert location.file_system(Path(real) / "holdfast.db", mounted(written, "nfs4")) == "nfs4"
    assert location.file_system(Path("/home/me/holdfast.db"), mounted(written, "nfs4")) == "ext4"


def test_the_innermost_mount_counts() -> None:
    mounts = mounted("/mnt", "nfs4") + "41 40 8:1 / /mnt/disk rw - ext4 /dev/sda1 rw\n"

    assert location.file_system(Path("/mnt/disk/holdfast.db"), mounts) == "ext4"
    assert location.file_system(Path("/mnt/diskette/holdfast.db"), mounts) == "nfs4"
    assert location.file_system(Path("/mntx/holdfast.db"), mounts) == "ext4"


def test_of_two_mounts_on_one_point_the_later_counts() -> None:
    mounts = mounted("/mnt", "ext4") + "42 40 0:31 / /mnt rw - nfs4 server:/share rw\n"

    assert location.file_system(Path("/mnt/holdfast.db"), mounts) == "nfs4"


def test_a_link_to_a_network_file_system_is_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")

    mounts = mounted(str(tmp_path / "far"), "nfs4")
    assert location.file_system(tmp_path / "near" / "holdfast.db", mounts) == "nfs4"


@pytest.mark.parametrize("mounts", ["", "nonsense\n", "1 2 3\n", "40 27 0:30 / /mnt rw nodash\n", "\n\n"])
def test_an_invalid_mount_table_refuses_nothing(mounts: str) -> None:
    location.refuse_network(Path("/mnt/holdfast.db"), mounts)


def test_the_mount_table_of_this_machine_is_parsed(tmp_path: Path) -> None:
    if not location.MOUNTS.exists():
        pytest.skip("this system has no mount table of this form")

    assert location.file_system(tmp_path, location.MOUNTS.read_text("utf-8", "surrogateescape")) is not None


async def test_a_missing_database_is_not_replaced_by_an_empty_one_beside_its_rescued_copy(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    for name in ("holdfast.db.rescued-1", "holdfast.db.rescued-10", "holdfast.db.rescued-2"):
        (tmp_path / name).touch()

    with pytest.raises(Unsupported, match=r"holdfast\.db is missing.*holdfast\.db\.rescued-10.*holdfast restore"):
        await open_sqlite(path)

    assert not path.exists()
