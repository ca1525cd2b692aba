"""The web client for MCP servers: authenticated, and with a limit for the size of an answer."""

from collections.abc import AsyncIterator

import httpx2

from holdfast.tools.mcp.server import MAX_MESSAGE_BYTES, McpServer


class AnswerTooLong(httpx2.StreamError):
    """The MCP library reports it as the failure of the request."""


class LimitedStream(httpx2.AsyncByteStream):
    """Ends with an error after too many bytes."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._stream:
            read += len(chunk)
            if read > MAX_MESSAGE_BYTES:
                raise AnswerTooLong(f"the answer is longer than {MAX_MESSAGE_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def limit_answer(response: httpx2.Response) -> None:
    """Limits every answer but event streams, whose events are limited by their reader."""
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith("text/event-stream") and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = LimitedStream(response.stream)


def open_web_client(server: McpServer, seconds: float, authentication: httpx2.Auth | None) -> httpx2.AsyncClient:
    # A server may be silent while a person is asked; each request has its own limit.
    timeout = httpx2.Timeout(seconds, read=None)
    # With a transport of its own, the client would ignore the proxies of the environment.
    return httpx2.AsyncClient(
        headers=server.headers, timeout=timeout, auth=authentication, event_hooks={"response": [limit_answer]}
    )
