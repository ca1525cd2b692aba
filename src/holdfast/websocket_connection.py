"""WebSocket connections of the HTTP server: size limit, detection of lost clients, and a graceful shutdown."""

import logging
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.http_connection import SERVER_LEAVES, SHUTDOWN_MARK

logger = logging.getLogger(__name__)
logger.setLevel(logging.WARNING)  # the access log has a line for each connection
logger.addFilter(lambda record: record.msg != "ASGI callable returned without completing handshake.")  # a refusal


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Uvicorn's protocol. At shutdown the application ends the connection, after the response under way."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger

    def shutdown(self) -> None:
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            return
        last = {"type": "websocket.disconnect", "code": SERVER_LEAVES, "reason": "", SHUTDOWN_MARK: True}
        self.queue.put_nowait(last)  # type: ignore[arg-type] # ASGI allows further fields
