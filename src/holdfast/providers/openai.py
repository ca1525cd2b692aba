"""OpenAI, and every server that speaks its Chat Completions API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from holdfast.model.asking import Delta, Reply, Request
from holdfast.model.errors import BadReply, ProviderFailed, Unreachable
from holdfast.providers.client import LateClient
from holdfast.providers.failures import Complaint, failure, hide_keys, redact
from holdfast.providers.openai_reply import Draft
from holdfast.providers.openai_wire import NAME, OFFICIAL, render
from holdfast.providers.pace import LIMITS, Limits, paced, silent, unconnected
from holdfast.providers.reply import Called, new_id
from holdfast.providers.server import Server, locate

if TYPE_CHECKING:
    import openai

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
"""By how names begin; first match. For GPT-5 it is what may be sent: the rest of its window is for the answer."""


class OpenAiProvider:
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
        self._client: LateClient[openai.AsyncOpenAI] = LateClient(lambda server: _start(server, limits))

    async def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
        server = locate(NAME, api_key=self._api_key, base_url=self._base_url, official=BASE_URL)
        client = await self._client.get(server)
        called = Called(request, self._new_id, server.who)
        draft = Draft(request, server=server.host, who=server.who, called=called)
        chunks = self._chunks(client, server, request)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    for delta in draft.add(chunk):
                        yield delta
        except Unreachable:
            # A connection that breaks after the model has said why it stopped took nothing with it but the count.
            if not draft.is_whole:
                raise
        yield draft.reply()

    def window(self, model: str) -> int | None:
        bare = model.rpartition("/")[2]
        return next((tokens for start, tokens in WINDOWS if bare.startswith(start)), None)

    async def close(self) -> None:
        await self._client.close()

    async def _chunks(
        self, client: "openai.AsyncOpenAI", server: Server, request: Request
    ) -> AsyncGenerator[object, None]:
        """The chunks as plain data, the SDK's failures as ours."""
        import openai

        body = cast(Any, render(request, server=server.host))
        try:
            async with asyncio.timeout(self._limits.first_seconds):
                stream = await client.chat.completions.create(**body)
            async with stream, aclosing(paced(stream, self._limits, server.who)) as pieces:
                async for piece in pieces:
                    yield piece.to_dict(warnings=False) if isinstance(piece, openai.BaseModel) else piece
        except TimeoutError as e:
            raise silent(server.who, self._limits.first_seconds) from e
        except openai.APIError as e:
            raise _translated(e, server, request.model) from e
        except ValueError as e:
            raise BadReply(f"{server.who} sent a piece that is not JSON: ask again") from e


def _start(server: Server, limits: Limits) -> "openai.AsyncOpenAI":
    import openai

    timeout = openai.Timeout(limits.first_seconds, connect=limits.connect_seconds)
    return openai.AsyncOpenAI(api_key=server.api_key, base_url=server.base_url, timeout=timeout, max_retries=0)


def _translated(e: "openai.APIError", server: Server, model: str) -> ProviderFailed:
    import openai

    redact(e, server.api_key)
    if isinstance(e, openai.APIConnectionError):
        return unconnected(server.who)
    if isinstance(e, openai.APIResponseValidationError):
        return BadReply(f"{server.who} sent something that is no reply: check the address")
    text = e.body.get("message") if isinstance(e.body, Mapping) else None
    return failure(
        Complaint(
            who=server.who,
            model=model,
            status=e.status_code if isinstance(e, openai.APIStatusError) else None,
            codes=tuple(str(code) for code in (e.code, e.type) if code),
            text=hide_keys(str(text or e.message), server.api_key),
            headers=e.response.headers if isinstance(e, openai.APIStatusError) else {},
        )
    )
