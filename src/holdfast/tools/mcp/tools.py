"""A tool of an MCP server, as a tool of the session."""

import asyncio
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.model.errors import LoginFailed, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.provider import ToolSpec
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.mcp.connection import describe_error
from holdfast.tools.mcp.results import to_parts
from holdfast.tools.mcp.server import McpServer, safe_name
from holdfast.tools.output_capture import OutputCapture

if TYPE_CHECKING:
    import mcp_types

    from holdfast.tools.mcp.link import ServerLink

MAX_NAME = 64
"""The longest name that all providers accept."""
OUTCOME_UNKNOWN = (
    "The outcome is unknown: the server may or may not have acted. Check before you call it again, and tell the user."
)


class McpTool:
    def __init__(self, name: str, server: McpServer, tool: "mcp_types.Tool", link: "ServerLink") -> None:
        hints = tool.annotations
        description = tool.description or f"The tool {tool.name} of the MCP server {server.name}."
        self.spec = ToolSpec(name, description, {**tool.input_schema, "type": "object"})
        self.repeatable = bool(hints and hints.read_only_hint)
        self._may_repeat = self.repeatable or bool(hints and hints.idempotent_hint)
        self._tool = tool
        self._server = server
        self._link = link

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        if self._server.trust or self.repeatable:
            return ()
        return (Finding(f"{self._tool.name} of MCP server {self._server.name} may change external state"),)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        from mcp import MCPError
        from mcp_types import INTERNAL_ERROR, PARSE_ERROR

        try:
            result = await self._link.call(self._tool, arguments, context, may_repeat=self._may_repeat)
        except Unavailable as e:
            return self._failed(f"is not available: {e}. Nothing was sent", is_known=True)
        except LoginFailed as e:
            return self._failed(f"did not accept the call: {e}. Nothing was done", is_known=True)
        except (ConnectionError, TimeoutError) as e:
            return self._failed(f"disconnected during the call: {e}", is_known=False)
        except MCPError as e:
            return self._failed(f"answered with an error: {e}", is_known=e.code not in {INTERNAL_ERROR, PARSE_ERROR})
        except (RuntimeError, ValueError) as e:
            # The library raises these for a result that violates the protocol or the tool's own schema.
            return self._failed(f"sent an invalid response: {describe_error(e)}", is_known=False)
        with OutputCapture(context.files, f"{self.spec.name}-{context.call_id}") as capture:
            parts = await asyncio.to_thread(to_parts, result, capture)
        if capture.path is not None:
            await asyncio.to_thread(capture.make_durable)
        return ToolOutput(parts=parts, ok=not result.is_error)

    def _failed(self, what: str, *, is_known: bool) -> ToolOutput:
        text = f"MCP server {self._server.name} {what}."
        return ToolOutput.say(text if is_known or self._may_repeat else f"{text} {OUTCOME_UNKNOWN}", ok=False)


def tool_name(server: str, tool: str, taken: Iterable[str] = ()) -> str:
    """The tool's name for the model: letters, digits, `_` and `-`, at most 64 characters, not in `taken`."""
    name = f"mcp__{safe_name(server)}__{safe_name(tool)}"
    if len(name) <= MAX_NAME and name not in taken:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{mark}"
