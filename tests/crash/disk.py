"""A small disk for one test: an ext4 file system in a file, which can be filled up or lose its power."""

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.programs import LIMIT_SECONDS

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING_ITS_JOURNAL = 2
MEGABYTE = 1024 * 1024
ON_DISK = "/var/tmp"
TOOLS = ("mkfs.ext4", "mount", "umount")
PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def need_disks() -> None:
    """Only root can mount. Elsewhere that is a reason to skip; in CI nothing is."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path=PLACES) is None]
    if os.environ.get("CI") or os.geteuid() == 0:
        assert os.geteuid() == 0, "these tests mount disks and must run as root in CI"
        assert not missing, f"not installed: {', '.join(missing)} (packages e2fsprogs and mount)"
    else:
        pytest.skip("only root can mount a disk")


class Disk:
    """An ext4 image and the folder it is mounted on."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.point = folder / "disk"
        self._image = folder / "image"
        self.point.mkdir()
        with self._image.open("wb") as image:
            image.truncate(megabytes * MEGABYTE)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))

    @property
    def home(self) -> Path:
        return self.point / "home"

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.point))

    def unmount(self) -> None:
        if self.point.is_mount():
            _run("umount", str(self.point))

    def abandon(self) -> None:
        """Detach it even if it is in use."""
        if self.point.is_mount():
            _run("umount", "-l", str(self.point))

    def cut_power(self) -> None:
        """Drop all data that has not reached the disk; every later operation fails.

        The next mount is of a copy. A mount namespace created meanwhile (the network of another test, the sandbox of a
        browser) keeps the file system that was shut down in use, and mounting it again would return it in that state.
        """
        descriptor = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_ITS_JOURNAL))
        finally:
            os.close(descriptor)
        after = self._image.with_name("image-after")
        shutil.copyfile(self._image, after)
        self._image = after


@contextmanager
def mounted(megabytes: int) -> Iterator[Disk]:
    """Mount a disk and always remove it afterwards. Its image is on a real disk, not on the RAM disk of `make test`."""
    need_disks()
    with tempfile.TemporaryDirectory(prefix="holdfast-disk-", dir=ON_DISK) as folder:
        disk = Disk(Path(folder), megabytes)
        disk.mount()
        try:
            yield disk
            disk.unmount()
        finally:
            disk.abandon()


def _run(*command: str) -> None:
    tool = shutil.which(command[0], path=PLACES)
    assert tool is not None, f"{command[0]} is not installed"
    done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
