"""The web client for MCP servers."""

import asyncio

import pytest

from holdfast.tools.mcp import http
from holdfast.tools.mcp.http import AnswerTooLong, open_web_client
from holdfast.tools.mcp.server import McpServer

SERVER = McpServer(name="far", url="http://far.example/mcp")


@pytest.fixture
async def proxy(monkeypatch):
    """A proxy that answers itself; the request lines that it got."""
    seen = []

    async def serve(reader, writer):
        seen.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("http_proxy", raising=False)
        yield seen


async def test_the_proxy_of_the_environment_is_used(proxy):
    async with open_web_client(SERVER, 30, None) as web:
        response = await web.get(SERVER.url)

    assert response.json() == {}
    assert proxy == [b"GET http://far.example/mcp HTTP/1.1"]


async def test_an_answer_that_is_too_long_is_an_error(proxy, monkeypatch):
    monkeypatch.setattr(http, "MAX_MESSAGE_BYTES", 1)
    async with open_web_client(SERVER, 30, None) as web:
        with pytest.raises(AnswerTooLong):
            await web.get(SERVER.url)
