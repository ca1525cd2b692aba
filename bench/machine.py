"""Describes the machine of a run: without names and paths."""

import os
import platform
from pathlib import Path

import apsw
import msgspec
import psutil


class Machine(msgspec.Struct, frozen=True):
    """What figures depend on."""

    processor: str
    cores: int
    memory_gb: int
    kernel: str
    file_system: str
    python: str
    sqlite: str

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_gb} GB, {self.kernel}, {self.file_system}, "
            f"Python {self.python}, SQLite {self.sqlite}"
        )


def describe(folder: Path) -> Machine:
    """This machine, with the file system of the folder where stores are made."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 2**30),
        kernel=f"{platform.system()} {platform.release()}",
        file_system=_file_system(folder.absolute()),
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """The type of the file system that is mounted closest above the folder."""
    mounts = [part for part in psutil.disk_partitions(all=True) if folder.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"
