"""Posts forms to OpenAI's services for images and audio, or compatible ones."""

import asyncio
import random
from collections.abc import Callable

from holdfast.providers.endpoint import ProviderEndpoint, resolve_endpoint
from holdfast.providers.error_mapping import ProviderErrorResponse
from holdfast.providers.multipart import EncodedForm
from holdfast.providers.openai.provider import BASE_URL, map_response
from holdfast.providers.openai.request import NAME
from holdfast.providers.retry import Chance, RetryPolicy, Sleep, retry_delay
from holdfast.providers.timeouts import RequestTimeouts
from holdfast.providers.transport import ProviderTransport

POLICY = RetryPolicy(tries=3)
TOO_BUSY = (429, 503)


class MediaRequests:
    """Requests to one service. A request is repeated only if the service was too busy to accept it."""

    def __init__(
        self,
        api_key: str,
        base_url: str | None,
        *,
        model: str,
        timeout_seconds: float,
        sleep: Sleep = asyncio.sleep,
        chance: Chance = random.random,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._model = model
        self._limits = RequestTimeouts(first_seconds=timeout_seconds)
        self._sleep = sleep
        self._chance = chance
        self._server: ProviderEndpoint | None = None
        self._transports: dict[str, ProviderTransport] = {}

    @property
    def endpoint(self) -> ProviderEndpoint:
        """Raises AuthFailed or Unreachable for invalid settings."""
        if self._server is None:
            self._server = resolve_endpoint(NAME, api_key=self._api_key, base_url=self._base_url, official=BASE_URL)
        return self._server

    async def post(
        self, path: str, form: EncodedForm, *, max_bytes: int, report: Callable[[str], None] = lambda _: None
    ) -> bytes:
        """The response. `report` is told why it takes longer. Raises ProviderFailed."""
        server, transport = self.endpoint, self._transport(path)
        tried = 1
        while True:
            try:
                return await transport.fetch(form.chunks, max_bytes=max_bytes, content_type=form.content_type)
            except ProviderErrorResponse as e:
                failed = map_response(e, server, self._model)
                after = failed.retry_after
                is_busy = failed.retryable and e.status in TOO_BUSY
                wait = retry_delay(POLICY, tried, self._chance(), after) if is_busy else None
                if wait is None:
                    raise failed from e
            tried += 1
            report(f"{failed}; next attempt in {wait:.0f} s")
            await self._sleep(wait)

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()

    def _transport(self, path: str) -> ProviderTransport:
        if path not in self._transports:
            server = self.endpoint
            headers = {"authorization": f"Bearer {server.api_key}"}
            self._transports[path] = ProviderTransport(server, path, headers, limits=self._limits)
        return self._transports[path]
