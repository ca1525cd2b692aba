"""The location of a SQLite store: private files on a file system whose locks and fsync are reliable."""

import errno
import os
import re
import stat
from pathlib import Path

from holdfast.model.errors import DiskFull, HoldfastError, NotSaved, ReadOnly, Unsupported
from holdfast.store import durable_file

# File systems on which SQLite's locks or shared memory cannot be relied on (https://sqlite.org/wal.html,
# "all processes must be on the same host"; https://sqlite.org/howtocorrupt.html, section 2).
NETWORK = {
    *(
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "virtiofs",
        "afs",
        "ncpfs",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
    ),
    *("gpfs", "ocfs2", "orangefs", "pvfs2", "vboxsf", "vmhgfs", "prl_fs", "drvfs", "davfs", "coda"),
    *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.glusterfs", "fuse.ceph", "fuse.vmhgfs-fuse"),
    *("fuse.davfs2", "fuse.curlftpfs", "fuse.juicefs", "fuse.goofys", "fuse.smbnetfs", "fuse.portal"),
}
MOUNTS = Path("/proc/self/mountinfo")
RESCUED = ".rescued-"
"""Between the name of a database and the number of a copy that was saved when its files were removed or replaced."""
ESCAPED = re.compile(r"\\([0-7]{3})")
"""How the kernel writes a space, a tab, a line break or a backslash in a mount point."""


def file_system(path: Path, mounts: str) -> str | None:
    """The type of the file system that contains the path, according to the text of `/proc/self/mountinfo`."""
    target = os.path.realpath(path)
    best, kind = "", None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4])
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind


def refuse_network(path: Path, mounts: str) -> None:
    """Raise Unsupported if the path is on a file system where a second process could corrupt the store."""
    kind = file_system(path, mounts)
    if kind in NETWORK:
        raise Unsupported(
            f"{path} is on a network file system ({kind}), where SQLite can lose acknowledged writes. "
            "Move the home directory to a local disk (--home or HOLDFAST_HOME), "
            "or use PostgreSQL (HOLDFAST_STORE=postgresql://…)."
        )


def refuse_missing(path: Path) -> None:
    """Raise Unsupported if the database is missing but there is a copy of its data: an empty store would hide the sessions."""
    try:
        files = () if path.exists() else tuple(path.parent.glob(f"{path.name}{RESCUED}*"))
    except OSError as e:
        raise _translate(e, path) from e
    copies = {file: int(number) for file in files if (number := file.suffix.removeprefix(RESCUED)).isdigit()}
    if copies:
        newest = max(copies, key=lambda file: copies[file])
        raise Unsupported(
            f"{path} is missing. It was removed while it was in use, and its data was saved as {newest}. "
            f"Run `holdfast restore {newest}`, or move that file away to start with an empty store."
        )


def prepare(path: Path) -> None:
    """Create the file, readable only by its owner, if it is missing, and check its location.

    An existing file is never opened and closed: closing any descriptor of a file drops all POSIX locks that this
    process holds on it, including those of SQLite.
    """
    try:
        durable_file.make_folders(path.parent, mode=0o700)
        if MOUNTS.exists():
            refuse_network(path, MOUNTS.read_text("utf-8", "surrogateescape"))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            durable_file.sync_folder(path.parent)
        except FileExistsError:
            if not stat.S_ISREG(path.stat().st_mode):
                raise Unsupported(
                    f"{path} is not a regular file and cannot be a store; it was left unchanged"
                ) from None
    except OSError as e:
        raise _translate(e, path) from e


def tighten(path: Path) -> None:
    """Remove the permissions of group and others from the files that this user owns."""
    try:
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            _make_private(file)
    except OSError as e:
        raise _translate(e, path) from e


def _make_private(file: Path) -> None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        file.chmod(0o600)


def _translate(error: OSError, path: Path) -> HoldfastError:
    match error.errno:
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return ReadOnly(f"cannot write to {error.filename or path}: {error.strerror}")
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(f"cannot create {path}: {error.strerror}; free some space and try again")
        case _:
            return NotSaved(f"cannot create {path}: {error.strerror}")
