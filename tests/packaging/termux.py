"""A root directory with the layout of Termux, made by bubblewrap.

Everything is below PREFIX; there is no /bin, /usr/bin or /tmp, and /proc/uptime and /proc/stat cannot be read, as on Android.
The programs are those of this machine, so the directories of their libraries are there too. It shows what depends on the
layout, and nothing about Android's C library: `pkg` only notes what it is asked to install.
"""

import shutil
import subprocess
import sys
from pathlib import Path

BASE = Path("/data/data/com.termux/files")
PREFIX, HOME = BASE / "usr", BASE / "home"
WHEELS = Path("/wheels")
PROGRAMS = [
    "sh",
    "bash",
    "uname",
    "dirname",
    "basename",
    "cat",
    "mkdir",
    "ln",
    "rm",
    "readlink",
    "ls",
    "sleep",
    "env",
    "rg",
]
PKG = '#!/bin/sh\necho "$@" >> "$PREFIX/pkg.log"\n'.replace("/bin/sh", str(PREFIX / "bin" / "sh"))


class Termux:
    def __init__(self, folder: Path, wheels: Path) -> None:
        self._files, self._wheels = folder / "files", wheels
        self._unreadable = folder / "unreadable"
        self._unreadable.touch(mode=0o000)
        binaries = self.path(PREFIX / "bin")
        for path in (binaries, self.path(PREFIX / "tmp"), self.path(HOME)):
            path.mkdir(parents=True)
        for name in PROGRAMS:
            if found := shutil.which(name):
                shutil.copy(found, binaries / name)
        for name in ("python", "python3"):
            (binaries / name).symlink_to(Path(sys.executable).resolve())
        (binaries / "pkg").write_text(PKG)
        (binaries / "pkg").chmod(0o755)

    def path(self, inside: Path) -> Path:
        """Where a path inside is on this machine."""
        return self._files / inside.relative_to(BASE)

    def run(self, *command: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._sandbox(), *map(str, command)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def _sandbox(self) -> list[str]:
        same = [Path("/usr/lib"), Path("/usr/lib64"), Path(sys.base_prefix) / "lib", Path(sys.executable).resolve()]
        mounts = [word for path in same if path.exists() for word in ("--ro-bind", path, path)]
        links = [word for name in ("lib", "lib64") for word in ("--symlink", f"usr/{name}", f"/{name}")]
        hidden = [word for name in ("uptime", "stat") for word in ("--ro-bind", self._unreadable, f"/proc/{name}")]
        variables = {
            "PREFIX": PREFIX,
            "HOME": HOME,
            "TMPDIR": PREFIX / "tmp",
            "PATH": PREFIX / "bin",
            "SHELL": PREFIX / "bin" / "bash",
            "LANG": "C.UTF-8",
            "PIP_NO_INDEX": "1",
            "PIP_NO_COMPILE": "1",
            "PIP_FIND_LINKS": WHEELS,
        }
        words = [
            *("bwrap", "--tmpfs", "/", *mounts, *links, "--bind", self._files, BASE, "--ro-bind", self._wheels, WHEELS),
            *("--dev", "/dev", "--unshare-pid", "--proc", "/proc", *hidden),
            *("--unshare-user", "--uid", "10123", "--gid", "10123", "--chdir", HOME, "--clearenv"),
            *(word for item in variables.items() for word in ("--setenv", *item)),
        ]
        return [*map(str, words), "--"]
