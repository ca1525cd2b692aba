"""Sends OTLP requests to a collector over HTTP."""

import asyncio
import gzip
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from holdfast.model.errors import Invalid, Unavailable
from holdfast.settings import mask_password

if TYPE_CHECKING:
    import aiohttp
    from google.protobuf.message import Message

logger = logging.getLogger(__name__)
SECONDS = 10.0
REJECTED = {400, 413, 422}
"""The collector will never accept this request: the data is dropped. Any other failure is tried again."""


class Collector:
    """The connection to one collector; its library is imported at the first request."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(endpoint)
        self._base = parts._replace(path=parts.path.rstrip("/"))
        self._headers = {**headers, "content-type": "application/x-protobuf", "content-encoding": "gzip"}
        self.name = mask_password(endpoint)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, signal: str, request: "Message") -> None:
        """Send one request. A rejected one is logged and dropped. Raises Unavailable if it is to be sent again."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=SECONDS))
        url = urlunsplit(self._base._replace(path=f"{self._base.path}/v1/{signal}"))
        body = gzip.compress(request.SerializeToString(), 1)
        try:
            async with self._session.post(url, data=body, headers=self._headers, allow_redirects=False) as response:
                if response.status in REJECTED:
                    said = (await response.content.read(300)).decode("utf-8", "replace")
                    logger.warning("the collector rejected %s with status %d: %s", signal, response.status, said)
                elif not 200 <= response.status < 300:
                    raise Unavailable(f"the collector at {self.name} answered {signal} with status {response.status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise Unavailable(f"the collector at {self.name} cannot be reached: {e or type(e).__name__}") from e
        except ValueError as e:
            raise Invalid(f"[telemetry] headers cannot be sent: {e}") from e

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)
