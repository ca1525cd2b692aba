"""OpenAI, and every server with its Chat Completions API."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial

from holdfast.model.errors import BadReply, ProviderFailed, Unreachable
from holdfast.model.provider import Delta, ModelReply, ModelRequest
from holdfast.providers.endpoint import ProviderEndpoint, resolve_endpoint
from holdfast.providers.error_mapping import ProviderErrorResponse, VendorError, hide_keys, map_error
from holdfast.providers.openai.request import NAME, OFFICIAL, render
from holdfast.providers.openai.stream import OpenAiReply
from holdfast.providers.rendered_prefix import render_in_thread_if_long
from holdfast.providers.reply_builder import CallIdAllocator, new_call_id
from holdfast.providers.sse_parser import ServerEvent
from holdfast.providers.timeouts import DEFAULT_TIMEOUTS, RequestTimeouts
from holdfast.providers.transport import ProviderTransport
from holdfast.providers.well_formed import merge_deltas

BASE_URL = f"https://{OFFICIAL}/v1"

WINDOWS = (
    ("gpt-5", 272_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4", 8_192),
    ("gpt-3.5", 16_385),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
)
"""By name prefix; the first match applies. For GPT-5 it is the input limit: the rest of its window is for the answer."""


class OpenAiProvider:
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
        draft = OpenAiReply(request, server=server.host, who=server.who, call_ids=call_ids)
        try:
            async with aclosing(transport.post(rendered.chunks)) as batches:
                async for events in batches:
                    for delta in merge_deltas(delta for event in events for delta in draft.add(event.data)):
                        yield delta
        except ProviderErrorResponse as e:
            raise map_response(e, server, request.model) from e
        except Unreachable:
            # After the finish reason a broken connection loses only the token count.
            if not draft.is_complete:
                raise
        yield draft.reply()

    def _connection(self) -> tuple[ProviderEndpoint, ProviderTransport]:
        """The endpoint and the transport to it. Raises AuthFailed or Unreachable for invalid settings."""
        if self._opened is None:
            server = resolve_endpoint(NAME, api_key=self._api_key, base_url=self._base_url, official=BASE_URL)
            headers = {"authorization": f"Bearer {server.api_key}"}
            transport = ProviderTransport(server, "/chat/completions", headers, limits=self._limits, is_last=_is_last)
            self._opened = server, transport
        return self._opened

    def window(self, model: str) -> int | None:
        bare = model.rpartition("/")[2]
        return next((tokens for start, tokens in WINDOWS if bare.startswith(start)), None)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened[1].close()


def _is_last(event: ServerEvent) -> bool:
    return event.data.startswith(b"[DONE]")


def map_response(response: ProviderErrorResponse, server: ProviderEndpoint, model: str) -> ProviderFailed:
    """The error to raise for an error response in the format of OpenAI."""
    document = response.document()
    error = document.get("error") or document
    said = error if isinstance(error, Mapping) else {}
    if not document and (response.status or 200) < 400:
        return BadReply(f"{server.who} sent an invalid response: check the URL")
    text = said.get("message") or (error if isinstance(error, str) else response.text())
    return map_error(
        VendorError(
            who=server.who,
            model=model,
            status=response.status,
            codes=tuple(str(said[key]) for key in ("code", "type") if said.get(key)),
            param=str(said.get("param") or ""),
            text=hide_keys(str(text), server.api_key),
            headers=response.headers,
        )
    )
