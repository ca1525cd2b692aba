"""Anthropic, and servers with its Messages API."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial

from holdfast.model.errors import BadReply, ProviderFailed, Unreachable
from holdfast.model.provider import Delta, ModelReply, ModelRequest
from holdfast.providers.anthropic.request import NAME, OFFICIAL, render
from holdfast.providers.anthropic.stream import AnthropicReply
from holdfast.providers.endpoint import ProviderEndpoint, resolve_endpoint
from holdfast.providers.error_mapping import ProviderErrorResponse, VendorError, hide_keys, map_error
from holdfast.providers.rendered_prefix import render_in_thread_if_long
from holdfast.providers.reply_builder import CallIdAllocator, new_call_id
from holdfast.providers.sse_parser import ServerEvent
from holdfast.providers.timeouts import DEFAULT_TIMEOUTS, RequestTimeouts
from holdfast.providers.transport import ProviderTransport
from holdfast.providers.well_formed import merge_deltas

BASE_URL = f"https://{OFFICIAL}"
VERSION = "2023-06-01"

LARGE = 1_000_000
USUAL = 200_000
WINDOWS = (
    ("claude-opus-4-6", LARGE),
    ("claude-opus-4-7", LARGE),
    ("claude-opus-4-8", LARGE),
    ("claude-sonnet-4-6", LARGE),
    ("claude-opus-5", LARGE),
    ("claude-sonnet-5", LARGE),
    ("claude-haiku-5", LARGE),
    ("claude-fable-5", LARGE),
    ("claude-", USUAL),
)
"""By name prefix; the first match applies."""


class AnthropicProvider:
    name = NAME

    def __init__(
        self,
        api_key: str = "",
        base_url: str | None = None,
        *,
        limits: RequestTimeouts = DEFAULT_TIMEOUTS,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._limits = limits
        self._new_id = new_id
        self._opened: tuple[ProviderEndpoint, ProviderTransport] | None = None

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        server, transport = self._connection()
        rendered = await render_in_thread_if_long(partial(render, server=server.host), request)
        call_ids = CallIdAllocator(rendered.prefix, self._new_id, server.who)
        draft = AnthropicReply(
            request, server=server.host, prefix=rendered.fingerprint, who=server.who, call_ids=call_ids
        )
        try:
            async with aclosing(transport.post(rendered.chunks)) as batches:
                async for events in batches:
                    for delta in merge_deltas(delta for event in events for delta in draft.add(event.data)):
                        yield delta
        except ProviderErrorResponse as e:
            raise _map_error(e, server, request.model) from e
        except Unreachable:
            # After the stop reason a broken connection loses nothing.
            if not draft.is_complete:
                raise
        yield draft.reply()

    def _connection(self) -> tuple[ProviderEndpoint, ProviderTransport]:
        """The endpoint and the transport to it. Raises AuthFailed or Unreachable for invalid settings."""
        if self._opened is None:
            server = resolve_endpoint(NAME, api_key=self._api_key, base_url=self._base_url, official=BASE_URL)
            headers = {"x-api-key": server.api_key, "anthropic-version": VERSION}
            transport = ProviderTransport(server, "/v1/messages", headers, limits=self._limits, is_last=_is_last)
            self._opened = server, transport
        return self._opened

    def window(self, model: str) -> int | None:
        return next((tokens for start, tokens in WINDOWS if model.startswith(start)), None)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened[1].close()


def _is_last(event: ServerEvent) -> bool:
    return event.name == b"message_stop"


def _map_error(response: ProviderErrorResponse, server: ProviderEndpoint, model: str) -> ProviderFailed:
    document = response.document()
    error = document.get("error")
    said = error if isinstance(error, Mapping) else {}
    if not document and (response.status or 200) < 400:
        return BadReply(f"{server.who} sent an invalid response: check the URL")
    return map_error(
        VendorError(
            who=server.who,
            model=model,
            status=response.status,
            codes=(str(said["type"]),) if "type" in said else (),
            text=hide_keys(str(said.get("message") or response.text()), server.api_key),
            headers=response.headers,
        )
    )
