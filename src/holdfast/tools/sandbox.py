"""Runs terminal commands with Holdfast's home hidden, by means of bubblewrap (`bwrap`).

Files, network and user are otherwise the same. In the sandbox the home is an empty directory except for the session's
own directories, a store outside the home is an empty file, and a command cannot inspect processes outside its sandbox,
whose `/proc/PID/root` would bypass it. For a user other than root a user namespace ensures this, and the command still
sees and can signal all processes. Root needs a PID namespace, in which only the processes of the command itself are
visible, and the settings of the kernel are read-only. No program in the sandbox can gain privileges, sudo included.
"""

import logging
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.model.errors import Unavailable, Unsupported
from holdfast.model.secret_names import without_secrets
from holdfast.model.tool import ToolContext
from holdfast.tools.home_guard import writable_folders

logger = logging.getLogger(__name__)
Mode = Literal["auto", "off", "required"]
Mount = tuple[str, ...]
"""An option of bwrap that mounts something: its last word is the place in the sandbox."""
PROBE_SECONDS = 10.0
KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/mtrr", "/sys")
KERNEL_MOUNTS: tuple[Mount, ...] = tuple(("--ro-bind-try", path, path) for path in KERNEL_FILES)
"""Settings of the kernel, which root could change without any capability: some name a program that runs outside the sandbox.

bwrap leaves `/proc/sys` writable if root starts it: for root the directory is not writable, though its files are.
"""
KEPT_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_AUDIT_WRITE": 29,
    "CAP_SETFCAP": 31,
}
"""The capabilities that root keeps in the sandbox, with their kernel numbers: none to mount or to inspect processes."""


class Sandbox(msgspec.Struct, frozen=True):
    """How commands are run. Without a program they run directly."""

    home: Path
    hidden_files: tuple[Path, ...] = ()
    program: str | None = None
    reason: str = ""
    """Why there is no sandbox."""
    environment: Mapping[str, str] = {}
    """The variables of programs that file tools run in a sandbox."""
    home_id: tuple[int, int] | None = None
    """The device and inode of the home when this was made."""

    def prefix(self, context: ToolContext, workdir: Path) -> tuple[str, ...]:
        """The arguments to put before a command that runs in a directory for a session."""
        if self.program is None:
            return ()
        # Real paths: bwrap cannot mount over a link.
        own = [os.path.realpath(path) for path in writable_folders(context, self.home)]
        binds = [word for path in own for word in ("--bind", path, path)]
        files = os.path.realpath(context.files)
        binds += ["--ro-bind-try", files, files]
        return (*self._sandbox_options(self.program), *binds, "--chdir", str(workdir), "--")

    def _sandbox_options(self, program: str) -> list[str]:
        words = [program, "--dev-bind", "/", "/"]
        if os.geteuid() == 0:
            words += ["--unshare-pid", "--proc", "/proc", *(word for mount in KERNEL_MOUNTS for word in mount)]
        return [*words, *drop_privileges(), *self.hiding_options()]

    def hiding_options(self) -> list[str]:
        return [word for mount in self.hiding_mounts() for word in mount]

    def hiding_mounts(self) -> list[Mount]:
        """The options that hide the home, and a store outside of it. Raises Unavailable if the home was moved.

        A command that can rename a parent directory of the home could otherwise read it in its new place.
        """
        if self.home_id is not None and file_id(self.home) != self.home_id:
            raise Unavailable(f"{self.home} was moved or replaced, so it cannot be hidden; restart Holdfast")
        mounts: list[Mount] = [("--tmpfs", os.path.realpath(self.home))] if self.home.is_dir() else []
        return [*mounts, *(("--ro-bind", "/dev/null", str(path)) for path in self.hidden_files if path.is_file())]

    def probe(self) -> "Sandbox":
        """This sandbox if it works on this machine, otherwise one with the reason why not."""
        assert self.program is not None, "only a sandbox with a program can be probed"
        command = [
            *self._sandbox_options(self.program),
            "--chdir",
            "/",
            "--",
            "/bin/sh",
            "-c",
            'test -z "$(ls -A "$0")"',
        ]
        command.append(os.path.realpath(self.home))
        try:
            completed = subprocess.run(  # noqa: S603 - the system's program with our arguments
                command, capture_output=True, timeout=PROBE_SECONDS, check=False, env={}
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            return Sandbox(self.home, reason=f"bwrap does not work here: {e}")
        if completed.returncode == 0:
            return self
        messages = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        return Sandbox(
            self.home, reason=f"bwrap does not work here: {messages[-1] if messages else 'the home is not hidden'}"
        )


def open_sandbox(mode: Mode, home: Path, environment: Mapping[str, str], hidden_files: Sequence[Path] = ()) -> Sandbox:
    """The sandbox of this machine, tested. Raises Unsupported if it is required and does not work."""
    if mode == "off":
        return Sandbox(home, reason="turned off by [terminal] sandbox")
    program = shutil.which("bwrap", path=environment.get("PATH"))
    outside = tuple(path for path in hidden_files if not path.is_relative_to(home))
    if program is None:
        found = Sandbox(home, reason="bwrap is not installed")
    else:
        found = Sandbox(home, outside, program, environment=without_secrets(environment), home_id=file_id(home)).probe()
    if found.program is None and mode == "required":
        raise Unsupported(f"[terminal] sandbox is required, but {found.reason}; install bubblewrap or set it to auto")
    return found


def file_id(path: Path) -> tuple[int, int] | None:
    """The device and inode of a file or directory; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def drop_privileges(kept: Collection[str] = KEPT_CAPABILITIES.keys()) -> list[str]:
    """The options that leave root only these capabilities, of those that it has, and give others a user namespace."""
    if os.geteuid() != 0:
        return ["--unshare-user"]
    effective = next(line for line in Path("/proc/self/status").read_text("ascii").splitlines() if "CapEff" in line)
    mask = int(effective.split()[1], 16)
    names = [name for name, number in KEPT_CAPABILITIES.items() if name in kept and mask >> number & 1]
    return ["--cap-drop", "ALL", *(word for name in names for word in ("--cap-add", name))]
