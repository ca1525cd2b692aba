"""The backend `bubblewrap`: a read-only system, a private `/tmp`, a writable working directory, the network on or off.

Directories with the user's secrets, sockets of services in `/run`, and Holdfast's home are hidden. `/tmp` is a directory
of the session, so that a file that one command writes is there for the next.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.model.errors import Unavailable
from holdfast.model.tool import ToolContext
from holdfast.settings import BubblewrapSettings
from holdfast.store import durable_file
from holdfast.tools.backends.port import Completed, run_program
from holdfast.tools.backends.private_tmp import private_tmp
from holdfast.tools.backends.secret_paths import find_secret_files, find_secret_folders
from holdfast.tools.sandbox import KERNEL_MOUNTS, Mount, Sandbox, drop_privileges

RUNTIME_FOLDERS = ("/run", "/var/run")
"""Directories with the sockets of services, such as container engines."""
RESOLVER = "/run/systemd/resolve"
"""Where `/etc/resolv.conf` may point to."""
CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID")
"""What root keeps: access to files. Not the configuration of the network, which is the machine's unless it is off."""
PRIVATE_TMP = Path("/tmp")  # noqa: S108 - in the sandbox


class BubblewrapBackend:
    name = "bubblewrap"
    is_direct = False
    shares_files = True

    def __init__(self, sandbox: Sandbox, settings: BubblewrapSettings, user_home: Path) -> None:
        self._sandbox = sandbox
        self._settings = settings
        self._user_home = user_home

    async def prepare(self, context: ToolContext) -> None:
        if self._sandbox.program is None:
            raise Unavailable(f"the terminal backend is bubblewrap, but {self._sandbox.reason}")
        try:
            durable_file.make_folders(self._tmp(context), mode=0o700)
        except OSError as e:
            raise Unavailable(f"the private /tmp of the session cannot be created: {e.strerror}") from e

    def _tmp(self, context: ToolContext) -> Path:
        return private_tmp(self._sandbox.home, context.session_id)

    def workdir(self, context: ToolContext) -> Path:
        return context.workdir

    def prefix(self, context: ToolContext, workdir: Path, *, background: bool) -> tuple[str, ...]:
        assert self._sandbox.program is not None, "prepare has checked it"
        mounts = self._mounts(context)
        _check_mount_points(self._tmp(context), (Path(mount[-1]) for mount in mounts))
        return (
            self._sandbox.program,
            *("--unshare-pid", "--unshare-ipc"),
            *drop_privileges(CAPABILITIES),
            *([] if self._settings.network else ["--unshare-net"]),
            *(word for mount in mounts for word in mount),
            *("--chdir", str(workdir), "--"),
        )

    def _mounts(self, context: ToolContext) -> list[Mount]:
        """A directory comes before those in it, so the mount with the longest path decides what is seen and changed."""
        # Real paths: bwrap cannot mount over a link.
        tmp, files = os.path.realpath(self._tmp(context)), os.path.realpath(context.files)
        own = [os.path.realpath(path) for path in (*self._settings.writable, str(context.workdir))]
        mounts: list[Mount] = [
            ("--ro-bind", "/", "/"),
            ("--dev", "/dev"),
            ("--proc", "/proc"),
            *KERNEL_MOUNTS,
            *self._hidden(),
            *self._sandbox.hiding_mounts(),
            ("--bind", tmp, str(PRIVATE_TMP)),
            *(("--bind", path, path) for path in own),
            ("--ro-bind-try", files, files),
        ]
        return sorted(mounts, key=lambda mount: len(Path(mount[-1]).parts))

    def _hidden(self) -> list[Mount]:
        runtime = {os.path.realpath(path) for path in RUNTIME_FOLDERS if Path(path).is_dir()}
        return [
            *(("--tmpfs", path) for path in (*sorted(runtime), *find_secret_folders(self._user_home))),
            *(("--ro-bind", "/dev/null", path) for path in find_secret_files(self._user_home)),
            ("--ro-bind-try", RESOLVER, RESOLVER),
        ]

    async def run(self, context: ToolContext, words: Sequence[str], data: bytes = b"") -> Completed:
        await self.prepare(context)
        command = [*self.prefix(context, context.workdir, background=False), *words]
        return await run_program(command, data, environment=self._sandbox.environment)


def _check_mount_points(tmp: Path, targets: Iterable[Path]) -> None:
    """Raises Unavailable if a command made a link on the way to a mount point in its `/tmp`.

    bwrap follows such a link when it creates the mount point, also to directories outside the sandbox.
    """
    for target in targets:
        if target == PRIVATE_TMP or not target.is_relative_to(PRIVATE_TMP):
            continue
        path = tmp
        for name in target.relative_to(PRIVATE_TMP).parts:
            path /= name
            if path.is_symlink():
                raise Unavailable(f"{path} is a link, but {target} must be there in the sandbox; remove it")
