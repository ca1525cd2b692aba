"""The backend `bubblewrap`: a read-only system, a private `/tmp`, a writable working directory, the network on or off.

Directories with the user's secrets, sockets of services in `/run`, and Holdfast's home are hidden. `/tmp` is a directory
of the session, so that a file that one command writes is there for the next.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.errors import Unavailable
from holdfast.model.tool import ToolContext
from holdfast.settings import BubblewrapSettings
from holdfast.store import durable_file
from holdfast.tools.backends.port import Completed, run_program
from holdfast.tools.sandbox import Sandbox, drop_privileges

SECRETS = (".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".config/gcloud", ".config/gh", ".password-store")
"""Directories in the user's home directory."""
SECRET_FILES = (".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass")
RESOLVER = "/run/systemd/resolve"
"""Where `/etc/resolv.conf` may point to."""
TMP = "tmp"
"""The directory in the home with the private `/tmp` of each session."""


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
            durable_file.make_folders(self.private_tmp(context), mode=0o700)
        except OSError as e:
            raise Unavailable(f"the private /tmp of the session cannot be created: {e.strerror}") from e

    def private_tmp(self, context: ToolContext) -> Path:
        return self._sandbox.home / TMP / context.session_id

    def workdir(self, context: ToolContext) -> Path:
        return context.workdir

    def prefix(self, context: ToolContext, workdir: Path, *, background: bool) -> tuple[str, ...]:
        assert self._sandbox.program is not None, "prepare has checked it"
        return (
            self._sandbox.program,
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc"),
            *drop_privileges(),
            *([] if self._settings.network else ["--unshare-net"]),
            *self._hidden(),
            *self._own_directories(context),
            *("--chdir", str(workdir), "--"),
        )

    def _hidden(self) -> list[str]:
        words = ["--tmpfs", "/run", "--ro-bind-try", RESOLVER, RESOLVER]
        for path in (self._user_home / name for name in SECRETS):
            words += ["--tmpfs", os.path.realpath(path)] if path.is_dir() else []
        for path in (self._user_home / name for name in SECRET_FILES):
            words += ["--ro-bind", "/dev/null", os.path.realpath(path)] if path.is_file() else []
        return words

    def _own_directories(self, context: ToolContext) -> list[str]:
        """What commands can change. Holdfast's home is hidden, except for the directories of this session."""
        # Real paths: bwrap cannot mount over a link.
        tmp, files = os.path.realpath(self.private_tmp(context)), os.path.realpath(context.files)
        words = ["--bind", tmp, "/tmp"]  # noqa: S108 - the private one
        words += [word for path in self._settings.writable for word in ("--bind", path, path)]
        workdir = os.path.realpath(context.workdir)
        if not Path(os.path.realpath(self._sandbox.home)).is_relative_to(workdir):
            words += self._sandbox.hiding_options()
            return [*words, "--bind", workdir, workdir, "--ro-bind-try", files, files]
        # The working directory contains the home, such as the user's own home directory.
        words += ["--bind", workdir, workdir, *self._hidden(), *self._sandbox.hiding_options()]
        return [*words, "--ro-bind-try", files, files]

    async def run(self, context: ToolContext, words: Sequence[str], data: bytes = b"") -> Completed:
        await self.prepare(context)
        return await run_program([*self.prefix(context, context.workdir, background=False), *words], data)
