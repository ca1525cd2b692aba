"""The server in this process, and as a command that the official client of the `mcp` package starts or connects to."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from holdfast import config
from holdfast.engine.engine import Engine
from holdfast.mcp_server.calls import SessionCalls
from holdfast.mcp_server.server import create_server
from holdfast.tasks import running, wait_for_first
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import open_app
from tests.api.serving import KEY, write_config
from tests.crash.programs import Hung, Process

GUIDE = Path(__file__).parents[2] / "docs" / "mcp-server.md"
MODES = ["auto", "legacy"]
"""The protocol without a handshake, and the one with it."""


class McpClient:
    """Calls tools, and returns their structured results."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[str] = []

    async def result(self, name: str, **arguments: Any) -> Any:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        return await self.client.call_tool(name, arguments, progress_callback=note)

    async def call(self, name: str, **arguments: Any) -> Any:
        found = await self.result(name, **arguments)
        assert not found.is_error, found.content
        return found.structured_content

    async def refused(self, name: str, **arguments: Any) -> str:
        """The code of the error."""
        found = await self.result(name, **arguments)
        assert found.is_error and found.content[0].text.startswith(found.structured_content["error"]["code"])
        return str(found.structured_content["error"]["code"])

    async def open(self, **arguments: Any) -> str:
        return str((await self.call("open_session", **arguments))["session"]["id"])

    async def say(self, session: str, text: str, **arguments: Any) -> Any:
        """Send a message and follow its turn to the end."""
        sent = await self.call("send_message", session=session, text=text, **arguments)
        return await self.call("follow_turn", session=session, turn_id=sent["turn_id"])


class Inside:
    """The server and its engine in this process."""

    def __init__(self, engine: Engine, client: Client) -> None:
        self.engine = engine
        self.mcp = McpClient(client)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path / "home")
    return tmp_path / "home"


@asynccontextmanager
async def open_inside(home: Path, mode: str = "auto") -> AsyncIterator[Inside]:
    async with (
        open_app(config.load(home)) as app,
        open_engine(app.database, app.settings, {}, supervisor=app.supervisor, kind="mcp", sweeps=True) as engine,
        Client(create_server(SessionCalls(engine, app.search)), mode=mode) as client,
    ):
        yield Inside(engine, client)


@pytest.fixture
async def inside(home: Path) -> AsyncIterator[Inside]:
    """Opened and closed in one task, as the library needs it; the fixture itself runs in two."""
    ready: asyncio.Future[Inside] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()

    async def hold() -> None:
        async with open_inside(home) as opened:
            ready.set_result(opened)
            await closing.wait()

    async with running(hold()) as (task,):
        await wait_for_first(task, ready)
        if task.done():
            task.result()
        yield ready.result()
        closing.set()
        await task


def command(home: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", "--home", str(home), "mcp", *options]


@asynccontextmanager
async def open_stdio(home: Path, mode: str = "auto") -> AsyncIterator[McpClient]:
    """The server as a child process of the client, configured as documented."""
    [documented] = re.findall(r"```json\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    given = json.loads(documented)["mcpServers"]["holdfast"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    parameters = StdioServerParameters(**given, env={"HOLDFAST_HOME": str(home), "PATH": path})
    with Path(os.devnull).open("w") as nowhere:
        async with Client(stdio_client(parameters, errlog=nowhere), mode=mode, read_timeout_seconds=50) as client:
            yield McpClient(client)


class HttpServer:
    """`holdfast mcp --http` as a process that can be killed and started again on the same home and port."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self.start()

    def start(self) -> None:
        self.process = Process(*command(self.home, "--http", "--port", str(self.port)))
        self.process.__enter__()
        if not self.process.wait_for_output("Holdfast serves MCP at"):
            raise Hung(f"the server did not start: {self.process.stderr}")
        self.port = int(self.process.stdout.partition("127.0.0.1:")[2].partition("/")[0])

    def kill(self) -> None:
        self.process.kill()
        self.process.__exit__(None, None, None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @asynccontextmanager
    async def connect(self, mode: str = "auto", key: str = KEY) -> AsyncIterator[McpClient]:
        async with AsyncExitStack() as stack:
            headers = {"authorization": f"Bearer {key}"}
            web = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=50))
            transport = streamable_http_client(self.url, http_client=web)
            yield McpClient(await stack.enter_async_context(Client(transport, mode=mode)))


@pytest.fixture
def http_server(home: Path) -> Any:
    server = HttpServer(home)
    yield server
    server.process.__exit__(None, None, None)
