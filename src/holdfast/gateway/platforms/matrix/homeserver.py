"""Requests to a homeserver. The access token goes into a header, because servers log URLs."""

import json
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import aiohttp
from nio import AsyncClient

from holdfast.gateway.port import describe_error
from holdfast.model.errors import Unavailable

NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
REQUEST_SECONDS = 30
CLIENT_API = "/_matrix/client/v3"
Json = dict[str, Any]


class ServerRefusal(Exception):
    """The homeserver answered with an error; `body` is its response."""

    def __init__(self, status: int, body: Json) -> None:
        self.status = status
        self.body = body
        self.code = str(body.get("errcode", ""))
        super().__init__(f"{self.code or status}: {str(body.get('error', ''))[:200]}")

    @property
    def retry_seconds(self) -> float:
        value = self.body.get("retry_after_ms")
        return value / 1000 if isinstance(value, int | float) else 1.0


class Homeserver:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def get(self, *path: str, seconds: float = REQUEST_SECONDS) -> Json:
        return await self.request("GET", make_path(*path), None, seconds)

    async def post(self, *path: str, body: Json) -> Json:
        return await self.request("POST", make_path(*path), body)

    async def put(self, *path: str, body: Json) -> Json:
        return await self.request("PUT", make_path(*path), body)

    async def request(self, method: str, path: str, body: Json | None = None, seconds: float = REQUEST_SECONDS) -> Json:
        """The response, a JSON object. Raises ServerRefusal for an error of the client, Unavailable for any other."""
        headers = {"Authorization": f"Bearer {self._client.access_token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        try:
            response = await self._client.send(method, without_token(path), data, headers, timeout=seconds)
            answer = json.loads(await response.text())
        except (*NETWORK, ValueError) as e:
            raise Unavailable(f"the server does not answer: {describe_error(e)}") from e
        if not isinstance(answer, dict):
            raise Unavailable("the server's response is not a JSON object")
        if response.status >= 500:
            raise Unavailable(f"the server answered {response.status}: {str(answer)[:200]}")
        if response.status >= 400:
            raise ServerRefusal(response.status, answer)
        return answer


def make_path(*parts: str) -> str:
    return "/".join([CLIENT_API, *(quote(part, safe="") for part in parts)])


def without_token(path: str) -> str:
    """Remove the access token from a URL of the library, where servers reject it and log it."""
    address = urlsplit(path)
    query = [(name, value) for name, value in parse_qsl(address.query) if name != "access_token"]
    return urlunsplit(address._replace(query=urlencode(query)))
