"""Anthropic, and servers that speak its Messages API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from holdfast.model.asking import Delta, Reply, Request
from holdfast.model.errors import BadReply, ProviderFailed, Unreachable
from holdfast.providers.anthropic_reply import Draft
from holdfast.providers.anthropic_wire import NAME, OFFICIAL, Json, compose
from holdfast.providers.client import LateClient
from holdfast.providers.failures import Complaint, failure, hide_keys, redact
from holdfast.providers.pace import LIMITS, Limits, paced, silent, unconnected
from holdfast.providers.reply import Called, new_id
from holdfast.providers.server import Server, locate

if TYPE_CHECKING:
    import anthropic

BASE_URL = f"https://{OFFICIAL}"

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
"""By how names begin; first match."""


class AnthropicProvider:
    """Asks over HTTP with the official SDK, which is imported at the first request."""

    name = NAME

    def __init__(
        self,
        api_key: str = "",
        base_url: str | None = None,
        *,
        limits: Limits = LIMITS,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._limits = limits
        self._new_id = new_id
        self._client: LateClient[anthropic.AsyncAnthropic] = LateClient(lambda server: _start(server, limits))

    async def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
        server = locate(NAME, api_key=self._api_key, base_url=self._base_url, official=BASE_URL)
        client = await self._client.get(server)
        composed = compose(request, server=server.host)
        called = Called(request, self._new_id, server.who)
        draft = Draft(request, server=server.host, prefix=composed.prefix, who=server.who, called=called)
        events = self._events(client, server, composed.body)
        try:
            async with aclosing(events):
                async for event in events:
                    for delta in draft.add(event):
                        yield delta
        except Unreachable:
            # A connection that breaks after the model has said why it stopped took nothing with it.
            if not draft.is_whole:
                raise
        yield draft.reply()

    def window(self, model: str) -> int | None:
        return next((tokens for start, tokens in WINDOWS if model.startswith(start)), None)

    async def close(self) -> None:
        await self._client.close()

    async def _events(
        self, client: "anthropic.AsyncAnthropic", server: Server, body: Json
    ) -> AsyncGenerator[object, None]:
        """The events as plain data, the SDK's failures as ours.

        The server pings while a model thinks in silence, and the SDK hides the pings. So silence on the wire is
        measured by the transport, and the longer limit holds between two events.
        """
        import anthropic
        import httpx2

        patience = Limits(first_seconds=self._limits.first_seconds, idle_seconds=self._limits.first_seconds)
        try:
            async with asyncio.timeout(self._limits.first_seconds):
                stream = await client.messages.create(**cast(Any, body))
            async with stream, aclosing(paced(stream, patience, server.who)) as pieces:
                async for piece in pieces:
                    yield piece.to_dict(warnings=False) if isinstance(piece, anthropic.BaseModel) else piece
        except TimeoutError as e:
            raise silent(server.who, self._limits.first_seconds) from e
        except (httpx2.TimeoutException, anthropic.APITimeoutError) as e:
            raise silent(server.who, self._limits.idle_seconds) from e
        except httpx2.HTTPError as e:
            raise unconnected(server.who) from e
        except anthropic.APIError as e:
            raise _translated(e, server, str(body["model"])) from e
        except ValueError as e:
            raise BadReply(f"{server.who} sent a piece that is not JSON: ask again") from e


def _start(server: Server, limits: Limits) -> "anthropic.AsyncAnthropic":
    import anthropic

    timeout = anthropic.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    return anthropic.AsyncAnthropic(api_key=server.api_key, base_url=server.base_url, timeout=timeout, max_retries=0)


def _translated(e: "anthropic.APIError", server: Server, model: str) -> ProviderFailed:
    import anthropic

    redact(e, server.api_key)
    if isinstance(e, anthropic.APIConnectionError):
        return unconnected(server.who)
    if isinstance(e, anthropic.APIResponseValidationError):
        return BadReply(f"{server.who} sent something that is no reply: check the address")
    said = e.body.get("error") if isinstance(e.body, Mapping) else None
    said = said if isinstance(said, Mapping) else {}
    return failure(
        Complaint(
            who=server.who,
            model=model,
            status=e.status_code if isinstance(e, anthropic.APIStatusError) else None,
            codes=(str(said["type"]),) if "type" in said else (),
            text=hide_keys(str(said.get("message") or e.message), server.api_key),
            headers=e.response.headers if isinstance(e, anthropic.APIStatusError) else {},
        )
    )
