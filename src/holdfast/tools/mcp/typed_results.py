"""Adds the type `complete` to results of an MCP server that have none, as the protocol of 2026 requires of its clients.

The MCP library rejects such a result as invalid, although the server has acted.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream

COMPLETE = "complete"
Incoming = SessionMessage | Exception


class TypedResults:
    """A stream of messages from a server; each result in it has a type."""

    def __init__(self, inner: "ReadStream[Incoming]") -> None:
        self._inner = inner

    @property
    def last_context(self) -> Any:
        """The context of the sender, which the library reads after each message."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        return _typed(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        return _typed(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def _typed(incoming: Incoming) -> Incoming:
    if isinstance(incoming, SessionMessage) and isinstance(incoming.message, JSONRPCResponse):
        incoming.message.result.setdefault("resultType", COMPLETE)
    return incoming
