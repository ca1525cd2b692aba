"""A real MCP server to test against: `mcp_server.py FOLDER stdio|PORT [legacy]`. It records its calls as files in the folder."""

import asyncio
import os
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

folder, transport, *era = sys.argv[1:]
FOLDER = Path(folder)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8cf500f0003860180"
    "5a347d6b0000000049454e44ae426082"
)


async def remember(context, call_next):
    mark("methods", context.method)
    return await call_next(context)


def without_the_new_protocol(app):
    """The protocol before 2026, with sessions and pings: it rejects the handshake of the new one."""

    async def filtered(scope, receive, send):
        if (b"mcp-method", b"server/discover") in scope.get("headers", ()):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await app(scope, receive, send)

    return filtered


server = MCPServer("fake", middleware=[remember], log_level="WARNING")
READS = ToolAnnotations(read_only_hint=True)
IDEMPOTENT = ToolAnnotations(read_only_hint=False, idempotent_hint=True)


def mark(name, text):
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\n")


@server.tool(annotations=READS)
def whoami() -> str:
    """Tells the server's process id."""
    return str(os.getpid())


@server.tool()
def note(text: str) -> str:
    """Writes a note down."""
    mark("notes", text)
    return "noted"


@server.tool()
def note_and_die(text: str) -> str:
    """Writes a note down and dies before it can say so."""
    mark("notes", text)
    os._exit(1)


@server.tool(annotations=READS)
def look() -> str:
    """Dies at the first call and answers from then on."""
    mark("looks", os.getpid())
    if len((FOLDER / "looks").read_text().split()) == 1:
        os._exit(1)
    return "seen"


@server.tool(annotations=IDEMPOTENT)
def put(text: str) -> str:
    """Dies at the first call and answers from then on."""
    mark("puts", text)
    if len((FOLDER / "puts").read_text().split()) == 1:
        os._exit(1)
    return "put"


@server.tool()
async def slow(seconds: float) -> str:
    """Takes its time."""
    mark("slow", "begun")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        mark("slow", "cancelled")
        raise
    mark("slow", "ended")
    return "done"


@server.tool()
def fail() -> str:
    """Never works."""
    raise ToolError("it does not work")


@server.tool(annotations=READS, structured_output=False)
def talk(characters: int) -> str:
    """Says much."""
    return "x" * characters


@server.tool(annotations=READS)
def picture() -> Image:
    """Shows a picture."""
    return Image(data=PIXEL, format="png")


@server.tool(name="odd name/☃" + "x" * 60, annotations=READS)
def odd() -> str:
    """Has a name that no provider accepts."""
    return "odd"


@server.resource("note://first", description="The first note.")
def first_note() -> str:
    return "buy milk"


@server.prompt(description="Reviews a text.")
def review(text: str) -> str:
    return f"Please review: {text}"


mark("starts", os.getpid())
if transport == "stdio":
    server.run("stdio")
else:
    app = server.streamable_http_app()
    uvicorn.run(without_the_new_protocol(app) if era else app, port=int(transport), log_level="warning")
