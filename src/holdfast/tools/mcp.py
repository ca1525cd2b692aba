"""The tools of configured MCP servers, as tools of the session. Only then is the library imported."""

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

import msgspec

import holdfast
from holdfast.model.asking import ToolSpec
from holdfast.model.errors import Unavailable
from holdfast.model.message import Content, File, Image, Text
from holdfast.model.tool import Output, Scene, Tool
from holdfast.tools.capture import Capture
from holdfast.tools.mcp_link import Link, reason

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

PING_SECONDS = 60.0
CONNECT_SECONDS = 60.0
"""Some servers are downloaded when they are first started."""
CALL_SECONDS = 600.0
MAX_NAME = 64
"""The longest name that all providers accept."""
MAX_PAGES = 100
MAX_LOG_BYTES = 1_000_000
MAX_MEDIA_CHARS = 7_000_000
"""Of a picture or a file in a result, written as text: about 5 MB."""
UNKNOWN = (
    "The outcome is unknown: the server may or may not have done it. "
    "Find out before you call it again, and tell the user."
)


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server to start by `command`, or to reach at `url`."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    trust: bool = False
    """Whether its tools may run without a person being asked."""


class McpServers:
    """The connections to all configured servers. A server that does not start is a problem, and stops no other."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        logs: Path | None = None,
        ping_seconds: float = PING_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._servers = servers
        self._logs = logs
        self._ping_seconds = ping_seconds
        self._connect_seconds = connect_seconds
        self._call_seconds = call_seconds
        self._links: list[Link] = []
        self._tools: list[Tool] = []
        self.problems: list[str] = []
        """What the user should know about servers that are not there."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def tools(self) -> list[Tool]:
        """The tools of all servers that answered, in a stable order."""
        return list(self._tools)

    async def close(self) -> None:
        """End all connections and the processes of servers that were started. May be called twice."""
        await asyncio.gather(*(link.close() for link in self._links))
        self._links.clear()

    async def _start(self) -> None:
        if self._servers and importlib.util.find_spec("mcp") is None:
            self.problems.append("MCP servers are configured but the package is missing: pip install 'holdfast[mcp]'")
            return
        listings = await asyncio.gather(*(self._listed(server) for server in self._servers))
        names: set[str] = set()
        for server, (link, tools) in zip(self._servers, listings, strict=True):
            for tool in sorted(tools, key=lambda tool: tool.name):
                name = name_for(server.name, tool.name, names)
                names.add(name)
                self._tools.append(McpTool(name, server, tool, link))

    async def _listed(self, server: McpServer) -> "tuple[Link, list[mcp_types.Tool]]":
        link = Link(
            lambda: self._dial(server),
            ping_seconds=self._ping_seconds,
            connect_seconds=self._connect_seconds,
            call_seconds=self._call_seconds,
        )
        self._links.append(link)
        try:
            if bool(server.command) == bool(server.url):
                raise Unavailable("it needs either a command or a url")
            return link, await _all_tools(await link.open())
        except Unavailable as e:
            log = f"; its messages are in {self._log(server)}" if server.command and self._logs else ""
            self.problems.append(f"MCP server {server.name} is not available: {e}{log}")
            await link.close()
            return link, []

    def _log(self, server: McpServer) -> Path | None:
        return self._logs / f"mcp-{_safe(server.name)}.log" if self._logs else None

    def _dial(self, server: McpServer) -> "contextlib.AbstractAsyncContextManager[Client]":
        if server.url:
            return _over_http(server, self._connect_seconds, self._call_seconds)
        return _over_stdio(server, self._log(server), self._connect_seconds)


class McpTool:
    def __init__(self, name: str, server: McpServer, tool: "mcp_types.Tool", link: Link) -> None:
        hints = tool.annotations
        description = tool.description or f"The tool {tool.name} of the MCP server {server.name}."
        self.spec = ToolSpec(name, description, {**tool.input_schema, "type": "object"})
        self.repeatable = bool(hints and hints.read_only_hint)
        self._may_repeat = self.repeatable or bool(hints and hints.idempotent_hint)
        self._tool = tool.name
        self._server = server
        self._link = link

    def risk(self, arguments: dict[str, object]) -> str | None:
        if self._server.trust or self.repeatable:
            return None
        return f"{self._tool} of MCP server {self._server.name} may change things outside"

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        from mcp import MCPError
        from mcp_types import INTERNAL_ERROR, PARSE_ERROR

        try:
            result = await self._link.call(self._tool, arguments, may_repeat=self._may_repeat)
        except Unavailable as e:
            return self._failed(f"is not available: {e}. Nothing was sent", is_known=True)
        except (ConnectionError, TimeoutError) as e:
            return self._failed(f"was lost during the call: {e}", is_known=False)
        except MCPError as e:
            return self._failed(f"answered with an error: {e}", is_known=e.code not in {INTERNAL_ERROR, PARSE_ERROR})
        except (RuntimeError, ValueError) as e:
            # The library's words for a result that does not fit the protocol or the tool's own schema.
            return self._failed(f"gave an answer that makes no sense: {reason(e)}", is_known=False)
        with Capture(scene.files, f"{self.spec.name}-{scene.call_id}") as capture:
            parts = await asyncio.to_thread(_parts, result, capture)
        return Output(parts=parts, ok=not result.is_error)

    def _failed(self, what: str, *, is_known: bool) -> Output:
        text = f"MCP server {self._server.name} {what}."
        return Output.say(text if is_known or self._may_repeat else f"{text} {UNKNOWN}", ok=False)


def name_for(server: str, tool: str, taken: Iterable[str] = ()) -> str:
    """The name the model knows a tool by: letters, digits, `_` and `-`, 64 at most, and nobody else's."""
    name = f"mcp__{_safe(server)}__{_safe(tool)}"
    if len(name) <= MAX_NAME and name not in taken:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{mark}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


async def _all_tools(client: "Client") -> "list[mcp_types.Tool]":
    from mcp import MCPError

    tools: list[mcp_types.Tool] = []
    cursor = None
    try:
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
    except (MCPError, ValueError) as e:
        raise Unavailable(f"it cannot list its tools: {reason(e)}") from e
    return tools


@contextlib.asynccontextmanager
async def _over_stdio(server: McpServer, log: Path | None, seconds: float) -> "AsyncIterator[Client]":
    from mcp import Client, StdioServerParameters, stdio_client

    program, *arguments = server.command
    parameters = StdioServerParameters(
        command=program, args=arguments, env=dict(server.env), encoding_error_handler="replace"
    )
    with _open_log(log) as errors:
        transport = stdio_client(parameters, errlog=errors)
        async with Client(transport, client_info=_ourselves(), read_timeout_seconds=seconds) as client:
            yield client


@contextlib.asynccontextmanager
async def _over_http(server: McpServer, seconds: float, call_seconds: float) -> "AsyncIterator[Client]":
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    # Longer than a call may take, so that the call's own limit is the one that counts.
    patience = httpx2.Timeout(seconds, read=call_seconds + seconds)
    async with httpx2.AsyncClient(headers=server.headers, timeout=patience) as web:
        transport = streamable_http_client(server.url, http_client=web)
        async with Client(transport, client_info=_ourselves(), read_timeout_seconds=seconds) as client:
            yield client


def _ourselves() -> "mcp_types.Implementation":
    from mcp_types import Implementation

    return Implementation(name="holdfast", version=holdfast.__version__)


def _open_log(log: Path | None) -> TextIO:
    """Where a server's own messages go; begun anew when it has grown long."""
    if log is None:
        return Path(os.devnull).open("w")
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_long = log.exists() and log.stat().st_size > MAX_LOG_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if is_long else 0)
    return os.fdopen(os.open(log, flags, 0o600), "w")


def _parts(result: "mcp_types.CallToolResult", capture: Capture) -> tuple[Content, ...]:
    """The result as the model sees it: all text in one part, cut if it is long, and pictures and files behind it."""
    texts, media = [], []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image" | "audio":
                media.append(_media(block.data, block.mime_type))
            case "resource_link":
                texts.append(f"{block.name}: {block.uri}")
            case "resource":
                found = block.resource
                if hasattr(found, "text"):
                    texts.append(found.text)
                else:
                    media.append(_media(found.blob, found.mime_type or "application/octet-stream", str(found.uri)))
    if not texts and not media and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    capture.feed("\n".join(texts).encode("utf-8", "backslashreplace"))
    shown = capture.text() or ("" if media else "(no output)")
    return (*((Text(shown),) if shown else ()), *media)


def _media(data: str, media_type: str, name: str = "") -> Content:
    if len(data) > MAX_MEDIA_CHARS:
        return Text(f"[{media_type} of {len(data):,} characters left out: too long]")
    url = f"data:{media_type};base64,{data}"
    return Image(url, media_type) if media_type.startswith("image/") else File(url, name, media_type)
