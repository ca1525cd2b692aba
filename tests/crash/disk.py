"""A small disk of its own for a test: an ext4 file system in a file, which can be filled up or lose its power."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.programs import LIMIT_SECONDS

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING_ITS_JOURNAL = 2
MEGABYTE = 1024 * 1024
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
        _do("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))

    @property
    def home(self) -> Path:
        return self.point / "home"

    def mount(self) -> None:
        _do("mount", "-o", "loop", str(self._image), str(self.point))

    def unmount(self) -> None:
        if self.point.is_mount():
            _do("umount", str(self.point))

    def abandon(self) -> None:
        """Get rid of it, whoever still uses it."""
        if self.point.is_mount():
            _do("umount", "-l", str(self.point))

    def cut_power(self) -> None:
        """What has not reached the disk by now never will; all that is tried from now on fails.

        The next mount is of a copy. Whoever makes a mount namespace meanwhile (another test's network, a
        browser's sandbox) holds on to the file system that was switched off, and one that is held is not
        mounted afresh: it comes back as dead as it was.
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
def mounted(folder: Path, megabytes: int) -> Iterator[Disk]:
    """A disk that is gone afterwards, whatever happened."""
    need_disks()
    disk = Disk(folder, megabytes)
    disk.mount()
    try:
        yield disk
        disk.unmount()
    finally:
        disk.abandon()


def _do(*command: str) -> None:
    tool = shutil.which(command[0], path=PLACES)
    assert tool is not None, f"{command[0]} is not installed"
    done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
