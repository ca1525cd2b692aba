"""Resources and prompts of an MCP server, as two tools that change nothing."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.errors import LoginFailed, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.message import Content, Text
from holdfast.model.provider import ToolSpec
from holdfast.model.tool import Tool, ToolContext, ToolOutput
from holdfast.tools.mcp.connection import McpConnection, describe_error
from holdfast.tools.mcp.results import to_parts
from holdfast.tools.output_capture import OutputCapture

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

MAX_LISTED = 200
"""Resources or prompts in a list; the text says how many are left out."""


class ResourceTool:
    """Lists the resources of a server, or reads one."""

    repeatable = True

    def __init__(self, name: str, server: str, connection: McpConnection) -> None:
        about = f"Reads a resource of the MCP server {server}. Without a uri it lists the resources."
        self.spec = ToolSpec(name, about, _schema(uri="The address of the resource, as listed."))
        self._connection = connection

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        uri = arguments.get("uri")

        async def send(client: "Client") -> "list[mcp_types.ContentBlock] | str":
            import mcp_types as types

            if not uri:
                return await _list_resources(client)
            found = await client.read_resource(str(uri))
            return [types.EmbeddedResource(type="resource", resource=one) for one in found.contents]

        return await _run(self._connection, send, self.spec.name, context)


class PromptTool:
    """Lists the prompts of a server, or returns the text of one."""

    repeatable = True

    def __init__(self, name: str, server: str, connection: McpConnection) -> None:
        about = f"Returns a prompt of the MCP server {server}: instructions to follow. Without a prompt it lists them."
        properties = _schema(prompt="The name of the prompt, as listed.", arguments="Its arguments, as a JSON object.")
        self.spec = ToolSpec(name, about, properties)
        self._connection = connection

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        name = arguments.get("prompt")
        try:
            values = msgspec.json.decode(str(arguments.get("arguments") or "{}"), type=dict[str, object])
        except (msgspec.DecodeError, UnicodeError) as e:
            return ToolOutput.say(f"arguments must be a JSON object as a text: {e}", ok=False)

        async def send(client: "Client") -> "list[mcp_types.ContentBlock] | str":
            if not name:
                return await _list_prompts(client)
            given = {key: str(value) for key, value in values.items()}
            return [message.content for message in (await client.get_prompt(str(name), given)).messages]

        return await _run(self._connection, send, self.spec.name, context)


async def find_extras(client: "Client") -> tuple[bool, bool]:
    """Whether the server has resources, and whether it has prompts. A server that cannot list them has none."""
    from mcp import MCPError

    offers = client.server_capabilities
    try:
        resources = bool((await client.list_resources()).resources) if offers.resources else False
        prompts = bool((await client.list_prompts()).prompts) if offers.prompts else False
    except (MCPError, ValueError):
        return False, False
    return resources, prompts


def extra_tools(server: str, connection: McpConnection, names: tuple[str, str], found: tuple[bool, bool]) -> list[Tool]:
    tools: list[Tool] = []
    if found[0]:
        tools.append(ResourceTool(names[0], server, connection))
    if found[1]:
        tools.append(PromptTool(names[1], server, connection))
    return tools


def _schema(**properties: str) -> dict[str, object]:
    described = {name: {"type": "string", "description": about} for name, about in properties.items()}
    return {"type": "object", "properties": described}


async def _list_resources(client: "Client") -> str:
    listed = (await client.list_resources()).resources
    return _listing([f"{one.uri}  {one.name}: {one.description or ''}" for one in listed])


async def _list_prompts(client: "Client") -> str:
    listed = (await client.list_prompts()).prompts
    return _listing(
        [
            f"{one.name}({', '.join(argument.name for argument in one.arguments or ())}): {one.description or ''}"
            for one in listed
        ]
    )


def _listing(lines: list[str]) -> str:
    more = [f"[{len(lines) - MAX_LISTED:,} more]"] if len(lines) > MAX_LISTED else []
    return "\n".join([*lines[:MAX_LISTED], *more]) or "(none)"


async def _run(connection: McpConnection, send: object, name: str, context: ToolContext) -> ToolOutput:
    from mcp import MCPError
    from mcp_types import CallToolResult

    try:
        found = await connection.request(send, may_repeat=True)  # type: ignore[arg-type,var-annotated] # one of the functions above
    except (Unavailable, LoginFailed, ConnectionError) as e:
        return ToolOutput.say(f"the MCP server is not available: {e}", ok=False)
    except (MCPError, ValueError, RuntimeError) as e:
        return ToolOutput.say(f"the MCP server answered with an error: {describe_error(e)}", ok=False)
    if isinstance(found, str):
        return ToolOutput.say(found)
    with OutputCapture(context.files, f"{name}-{context.call_id}") as capture:
        parts: tuple[Content, ...] = await asyncio.to_thread(to_parts, CallToolResult(content=found), capture)
    if capture.path is not None:
        await asyncio.to_thread(capture.make_durable)
    return ToolOutput(parts=parts or (Text("(empty)"),))
