"""The transport over standard input and output: one JSON-RPC message per line.

Implements the port `Transport` of the protocol's package. Unlike the package's own, it answers a malformed line with an
error, limits the length of a line, and leaves the process able to end after a signal.
"""

import asyncio
import json
from typing import Any

from holdfast.stdio_pipes import PipeLines

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class EditorTransport:
    """Reads requests of the editor, and writes one message at a time."""

    def __init__(self, lines: PipeLines, writer: asyncio.StreamWriter) -> None:
        self._lines = lines
        self._writer = writer
        self._lock = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raises ConnectionError if the editor is gone; if it does not read, only the writers wait."""
        line = json.dumps(message, separators=(",", ":"), default=str).encode("ascii")
        async with self._lock:
            self._writer.write(line + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next valid message; None when the editor has closed its end."""
        while (line := await self._lines.next()) is not None:
            if len(line) > self._lines.max_bytes:
                await self._refuse(INVALID_REQUEST, f"the message exceeds {self._lines.max_bytes:,} bytes")
            elif line.strip():
                message, problem = _parse(line)
                if message is not None:
                    return message
                await self._refuse(*problem)
        return None

    async def close(self) -> None:
        """The streams belong to the caller."""

    async def _refuse(self, code: int, message: str, request_id: int | str | None = None) -> None:
        """Answer a line that is not a valid message. Usually it cannot be matched to a request."""
        await self.send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def _parse(line: bytes) -> tuple[dict[str, Any] | None, tuple[int, str, int | str | None]]:
    """The message, or why the line is none, with the id of the request if it is one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as e:
        return None, (PARSE_ERROR, f"the line is not JSON: {e}", None)
    if _is_message(found):
        return found, (0, "", None)
    is_request = isinstance(found, dict) and "method" in found and _is_id(found.get("id"))
    return None, (INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message", found.get("id") if is_request else None)


def _is_message(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    if not all(isinstance(found.get(member), dict | None) for member in ("params", "error")):
        return False
    is_named = isinstance(found.get("method", ""), str) and ("method" in found or "id" in found)
    return is_named and _is_id(found.get("id"))


def _is_id(found: object) -> bool:
    return isinstance(found, int | str | None) and not isinstance(found, bool)
