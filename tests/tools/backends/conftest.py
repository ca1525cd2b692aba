"""The four terminal backends with the tools on top of them, in one store."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from holdfast.model.event import SessionOpened
from holdfast.model.message import text_of
from holdfast.model.tool import Tool, ToolContext
from holdfast.process_lookup import current_identity
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.settings import BubblewrapSettings, SshSettings
from holdfast.store.database import Database
from holdfast.store.repos import processes, sessions
from holdfast.tools.backends.bubblewrap import BubblewrapBackend
from holdfast.tools.backends.container import ContainerBackend
from holdfast.tools.backends.local import LocalBackend
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.backends.registry import Backends
from holdfast.tools.backends.ssh import SshBackend
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.process import ProcessTool
from holdfast.tools.sandbox import open_sandbox
from tests.fakes.clock import FakeClock
from tests.tools.backends.container_engine import Podman
from tests.tools.backends.ssh_server import ssh_server

SECRET = "hfk-0123456789abcdef"
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root"), "OPENAI_API_KEY": SECRET}


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    # A short path: Podman limits the length of some.
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    made = Podman(folder)
    yield made
    made.remove_all()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshSettings]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as settings:
        yield settings


class Terminal:
    """A session's tools in one backend."""

    def __init__(self, backend: TerminalBackend, context: ToolContext, tools: list[Tool], process: ProcessTool) -> None:
        self.backend = backend
        self.context = context
        self.process = process
        self._tools = {tool.spec.name: tool for tool in [*tools, process]}

    async def call(self, name: str, **arguments: object) -> tuple[bool, str]:
        """Run a tool; return whether it succeeded, and its text."""
        output = await self._tools[name].run(arguments, self.context)
        return output.ok, text_of(output.parts)

    async def run(self, command: str, **more: object) -> str:
        return (await self.call("terminal", command=command, **more))[1]

    async def count(self, *words: str) -> int:
        """How many programs with these words as their command line run in the backend."""
        if self.backend.shares_files:  # a sandbox has process ids of its own
            return sum(one.info["cmdline"] == list(words) for one in psutil.process_iter(["cmdline"]))
        script = 'n=0; for p in /proc/[0-9]*/cmdline; do [ "$(tr "\\0" " " <$p)" = "$1 " ] && n=$((n+1)); done 2>/dev/null; echo $n'
        done = await self.backend.run(self.context, ["sh", "-c", script, "holdfast", " ".join(words)])
        return int(done.output)


async def eventually(true: Callable[[], Awaitable[bool]], seconds: float = 40) -> None:
    """Poll for a state that sends no notification."""
    async with asyncio.timeout(seconds):
        while not await true():
            await asyncio.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "api-key").write_text(SECRET)
    return home


@pytest.fixture
def new_registry(database: Database, clock: FakeClock, home: Path) -> Callable[[], ProcessRegistry]:
    """Makes the registry of one more worker."""
    limits = ProcessLimits(ttl_seconds=7200, output_bytes=1 << 20)
    return lambda: ProcessRegistry(
        database, clock, current_identity(), home, {"PATH": os.environ["PATH"], "HOME": ENVIRONMENT["HOME"]}, limits
    )


@pytest.fixture
async def registry(database: Database, new_registry: Callable[[], ProcessRegistry]) -> AsyncIterator[ProcessRegistry]:
    made = new_registry()
    yield made
    for process in await database.read(processes.list_live):
        await made.stop(process, "the test is over", grace_seconds=0)


@pytest.fixture
async def new_context(database: Database, clock: FakeClock, home: Path) -> Callable[..., object]:
    async def make(session_id: str, terminal: str) -> ToolContext:
        await database.write(
            sessions.create, session_id, SessionOpened(source="api", terminal=terminal), at=clock.now()
        )
        workdir = home / "work" / session_id
        workdir.mkdir(parents=True)
        return ToolContext(
            session_id=session_id,
            turn_id="turn-1",
            call_id="call-1",
            workdir=workdir,
            files=home / "files" / session_id,
            terminal=terminal,
        )

    return make


def make_backend(
    name: str, request: pytest.FixtureRequest, database: Database, clock: FakeClock, home: Path, **settings: object
) -> TerminalBackend:
    match name:
        case "local":
            return LocalBackend(open_sandbox("required", home, ENVIRONMENT))
        case "bubblewrap":
            given = BubblewrapSettings(**settings)  # type: ignore[arg-type]
            return BubblewrapBackend(open_sandbox("required", home, ENVIRONMENT), given, home.parent / "user")
        case "container":
            engine = request.getfixturevalue("podman")
            request.addfinalizer(engine.remove_all)
            return ContainerBackend(database, clock, current_identity(), engine.settings(**settings), ENVIRONMENT, home)
        case _:
            server = msgspec.structs.replace(request.getfixturevalue("remote"), workdir=str(home.parent / "there"))
            return SshBackend(server, ENVIRONMENT, home)


@pytest.fixture
async def new_terminal(request, database, clock, home, registry, new_context):
    async def make(name: str, session_id: str = "hf-1", **settings: object) -> Terminal:
        backend = make_backend(name, request, database, clock, home, **settings)
        process = ProcessTool(registry, database, home=home)
        tools = builtin_tools(ENVIRONMENT, home=home, start_background=process.start, backends=Backends([backend]))
        return Terminal(backend, await new_context(session_id, name), tools, process)

    return make
