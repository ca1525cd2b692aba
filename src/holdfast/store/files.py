"""The place of a SQLite store: private files on a file system that can keep promises."""

import errno
import os
import re
import stat
from pathlib import Path

from holdfast.model.errors import DiskFull, HoldfastError, NotSaved, ReadOnly, Unsupported

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
ESCAPED = re.compile(r"\\([0-7]{3})")
"""How the kernel writes a space, a tab, a line break or a backslash in a mount point."""


def file_system(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds the path, by the text of `/proc/self/mountinfo`."""
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
    """Raise Unsupported if the path lies where a second process could corrupt it."""
    kind = file_system(path, mounts)
    if kind in NETWORK:
        raise Unsupported(
            f"{path} is on a network file system ({kind}), where SQLite cannot keep what it acknowledged. "
            "Put the home on a local disk (--home or HOLDFAST_HOME), "
            "or keep the store in PostgreSQL (HOLDFAST_STORE=postgresql://…)."
        )


def prepare(path: Path) -> None:
    """Make sure the file is there and in a sound place; a new one is private from the start.

    The file is created but never opened and closed again once it exists: closing any descriptor of
    a file drops all POSIX locks this process holds on it, SQLite's included.
    """
    try:
        missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        if MOUNTS.exists():
            refuse_network(path, MOUNTS.read_text("utf-8", "surrogateescape"))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not stat.S_ISREG(path.stat().st_mode):
                raise Unsupported(f"{path} is not a file, so it cannot be a store; it was left alone") from None
    except OSError as e:
        raise _translate(e, path) from e


def tighten(path: Path) -> None:
    """Take the store away from group and others, if it is ours to change."""
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
            return DiskFull(f"cannot create {path}: {error.strerror}; make room and try again")
        case _:
            return NotSaved(f"cannot create {path}: {error.strerror}")
