"""Sends a request to a search service and translates its failures."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from holdfast.model.errors import Invalid, Unavailable

T = TypeVar("T")
MAX_BYTES = 4 * 1024 * 1024
KEY_REFUSED = (401, 403)
TOO_MANY = (429, 432, 433)
"""Tavily also sends 432 and 433 if a plan or budget is used up."""


class SearchServiceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A GET with parameters or, with `body`, a POST."""

    service: str
    url: str
    params: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: Mapping[str, object] | None = None
    refused_hint: str = "check web.api_key"


async def fetch_json(request: SearchServiceRequest, reply: type[T], timeout_seconds: float) -> T:
    """The parsed response. Raises Unavailable or Invalid; no message contains the key."""
    import httpx2

    content = None if request.body is None else msgspec.json.encode(request.body)
    headers = {**request.headers, "Accept": "application/json"}
    if content is not None:
        headers["Content-Type"] = "application/json"
    try:
        async with (
            httpx2.AsyncClient(timeout=timeout_seconds, follow_redirects=False) as client,
            client.stream(
                "GET" if content is None else "POST",
                request.url,
                params=request.params,
                headers=headers,
                content=content,
            ) as answer,
        ):
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise Unavailable(f"{request.service} sent more than {MAX_BYTES:,} bytes")
            _check_status(request, answer.status_code)
    except httpx2.HTTPError as e:
        raise Unavailable(f"{request.service} cannot be reached: {type(e).__name__}: {e}") from e
    try:
        return msgspec.json.decode(bytes(body), type=reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise Unavailable(f"{request.service} sent an unexpected response: check web.base_url") from e


def _check_status(request: SearchServiceRequest, status: int) -> None:
    if status in KEY_REFUSED:
        raise Invalid(f"{request.service} refused the request (status {status}): {request.refused_hint}")
    if status in TOO_MANY:
        raise Unavailable(f"{request.service} allows no more requests at the moment (status {status})")
    if not 200 <= status < 300:
        raise Unavailable(f"{request.service} returned status {status}")
