"""The backend `ssh`: another machine, over connections of the OpenSSH client.

File operations and foreground commands share one connection, which stays open for ten minutes after its last use. A
background process has its own, held by its shim, so that it does not depend on the shared one. Keys of hosts are always
checked, and nothing is asked: the login must work with a key or an agent.
"""

import asyncio
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.model.errors import Unavailable
from holdfast.model.secret_names import without_secrets
from holdfast.model.tool import ToolContext
from holdfast.settings import SshSettings
from holdfast.store import durable_file
from holdfast.tools.backends import relay
from holdfast.tools.backends.port import Completed, run_program

OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ForwardAgent=no",
    "ClearAllForwardings=yes",
    "EscapeChar=none",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
)
PERSIST_SECONDS = 600
FAILED = 255
"""The exit code of ssh if the connection fails."""
SOCKETS = "ssh"
"""The directory in Holdfast's home with the sockets of shared connections."""
MAX_SOCKET_PATH = 80
"""Longer paths do not fit into the address of a socket, with what ssh appends."""


class SshBackend:
    name = "ssh"
    is_direct = False
    shares_files = False

    def __init__(self, settings: SshSettings, environment: Mapping[str, str], home: Path) -> None:
        self._settings = settings
        self._environment = without_secrets(environment)
        self._program = shutil.which("ssh", path=environment.get("PATH"))
        name = hashlib.sha256(f"{settings.user}@{settings.host}:{settings.port}".encode()).hexdigest()[:8]
        self._socket = home / SOCKETS / f"{os.getpid()}-{name}"
        self._connecting = asyncio.Lock()
        self._remote_home = Path("/")

    def workdir(self, context: ToolContext) -> Path:
        return self._remote_home / (self._settings.workdir or ".")

    async def prepare(self, context: ToolContext) -> None:
        if self._settings.host is None or self._program is None:
            reason = "[terminal.ssh] host is not set" if self._program else "ssh is not installed"
            raise Unavailable(f"the terminal backend is ssh, but {reason}")
        async with self._connecting:
            await self._share_connection()
        directory = shlex.quote(self._settings.workdir or ".")
        done = await self._run([*self._client(), f'mkdir -p -- {directory} && printf %s "$HOME"'])
        if done.code:
            raise Unavailable(f"cannot use {self._settings.host}: {done.errors or f'ssh ended with {done.code}'}")
        self._remote_home = Path(os.fsdecode(done.output))

    async def _share_connection(self) -> None:
        """Open the shared connection unless it is open. If that fails, each command opens its own, and reports why."""
        if len(str(self._socket)) > MAX_SOCKET_PATH:
            return
        durable_file.make_folders(self._socket.parent, mode=0o700)
        if (await self._run([*self._words("-O", "check"), self._host])).code == 0:
            return
        # The log goes to a file: the program that keeps the connection holds its standard error open.
        log = f"{self._socket}.log"
        keep = ("-M", "-N", "-f", "-E", log, "-o", f"ControlPersist={PERSIST_SECONDS}")
        await self._run([*self._words(*keep), self._host])

    @property
    def _host(self) -> str:
        return self._settings.host or ""

    def _words(self, *arguments: str, own_connection: bool = False) -> list[str]:
        """The client with its options, up to the host."""
        given = self._settings
        options = [*OPTIONS, f"ControlPath={'none' if own_connection else self._socket}"]
        if given.known_hosts is not None:
            options.append(f"UserKnownHostsFile={Path(given.known_hosts).expanduser()}")
        words = [self._program or "ssh", *(word for option in options for word in ("-o", option)), *arguments]
        words += ["-p", str(given.port)] if given.port else []
        words += ["-i", str(Path(given.identity_file).expanduser())] if given.identity_file else []
        words += ["-l", given.user] if given.user else []
        return [*words, "--"]

    def _client(self, *, own_connection: bool = False) -> list[str]:
        """The client up to the command, which the other machine's shell parses."""
        return [*self._words("-T", own_connection=own_connection), self._host]

    def prefix(self, context: ToolContext, workdir: Path, *, background: bool) -> tuple[str, ...]:
        client = self._client(own_connection=background)
        spec = {"command": client, "control": client, "quote": True, "workdir": str(workdir)}
        return (sys.executable, "-I", "-S", relay.__file__, json.dumps(spec))

    async def _run(self, words: Sequence[str], data: bytes = b"") -> Completed:
        return await run_program(words, data, environment=self._environment)

    async def run(self, context: ToolContext, words: Sequence[str], data: bytes = b"") -> Completed:
        await self.prepare(context)
        done = await self._run([*self._client(), shlex.join(words)], data)
        if done.code == FAILED:
            raise Unavailable(f"the connection to {self._settings.host} failed: {done.errors}")
        return done
