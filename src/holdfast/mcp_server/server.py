"""The MCP server: the list of tools, the dispatch of calls, and results and errors in the form of the protocol."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import msgspec
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

import holdfast
from holdfast.interop.serialization import Document
from holdfast.mcp_server import arguments
from holdfast.mcp_server.arguments import ToolArguments
from holdfast.mcp_server.calls import Report, SessionCalls
from holdfast.mcp_server.turn_result import TurnReport
from holdfast.model.errors import HoldfastError
from holdfast.model.surrogates import repair_json

INSTRUCTIONS = (
    "Holdfast keeps durable sessions with an AI agent. Open or find a session, send a message with a unique "
    "idempotency_key, then call follow_turn until its state is no longer queued or running. A message is saved when "
    "send_message returns; if a call fails, repeat it with the same idempotency_key."
)


class ServedTool(msgspec.Struct, frozen=True):
    """A tool: what it does for the client, its arguments, and the call."""

    name: str
    description: str
    arguments: type[ToolArguments]
    call: Callable[[Any, Report], Awaitable[Document]]
    reads_only: bool = False
    idempotent: bool = False

    def describe(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            description=self.description,
            input_schema=arguments.input_schema(self.arguments),
            annotations=types.ToolAnnotations(
                read_only_hint=self.reads_only,
                destructive_hint=False,
                idempotent_hint=self.reads_only or self.idempotent,
                open_world_hint=not self.reads_only,
            ),
        )


def create_server(calls: SessionCalls) -> "Server[dict[str, Any]]":
    """Create the server. It holds no state of a client, so any process can serve the next call."""
    tools = {tool.name: tool for tool in _tools(calls)}
    listing = types.ListToolsResult(tools=[tool.describe() for tool in tools.values()])

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listing

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if (tool := tools.get(params.name)) is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name[:100]!r}; known: {', '.join(tools)}")
        try:
            given = arguments.parse(tool.arguments, params.arguments)
            return _result(await tool.call(given, _progress_of(context)))
        except HoldfastError as e:
            return _error(e)

    return Server(
        "holdfast",
        version=holdfast.__version__,
        title="Holdfast",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tools(calls: SessionCalls) -> list[ServedTool]:
    def plain(call: Callable[[Any], Awaitable[Document]]) -> Callable[[Any, Report], Awaitable[Document]]:
        return lambda given, report: call(given)

    return [
        ServedTool(
            "list_sessions",
            "List sessions, the most recently used first. `next` is the cursor of the next page.",
            arguments.ListSessionsArguments,
            plain(calls.list_sessions),
            reads_only=True,
        ),
        ServedTool(
            "search_sessions",
            "Search the text of all messages, newest hits first. `next` is the cursor of the next page.",
            arguments.SearchSessionsArguments,
            plain(calls.search_sessions),
            reads_only=True,
        ),
        ServedTool(
            "read_session",
            "Read the messages of a session, oldest first. A page has at most 40,000 characters; `next` is the cursor of the next page.",
            arguments.ReadSessionArguments,
            plain(calls.read_session),
            reads_only=True,
        ),
        ServedTool(
            "open_session",
            "Get a session, or create one. With `key`, repeated calls open the same session.",
            arguments.OpenSessionArguments,
            plain(calls.open_session),
        ),
        ServedTool(
            "send_message",
            "Send a message to the agent of a session. Returns when the message is saved, before the reply; get the reply with follow_turn.",
            arguments.SendMessageArguments,
            plain(calls.send_message),
        ),
        ServedTool(
            "follow_turn",
            "Wait for the reply to a message, with progress. If `state` is queued or running, call it again.",
            arguments.FollowTurnArguments,
            calls.follow_turn,
            idempotent=True,
        ),
    ]


def _progress_of(context: ServerRequestContext[Any]) -> Report:
    count = 0

    async def report(message: str) -> None:
        nonlocal count
        count += 1
        await context.session.report_progress(count, message=message)

    return report


def _result(document: Document) -> types.CallToolResult:
    body = repair_json(msgspec.to_builtins(document))
    text = msgspec.json.encode(body).decode("utf-8")
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=body,
        is_error=isinstance(document, TurnReport) and document.failed,
    )


def _error(error: HoldfastError) -> types.CallToolResult:
    """A failure that has a name. The client can see whether a repeat may succeed."""
    body = {"error": {"code": error.code, "message": str(error), "retryable": error.retryable}}
    return types.CallToolResult(
        content=[types.TextContent(text=f"{error.code}: {error}")], structured_content=body, is_error=True
    )
