"""Responses of the broker itself, in the API's format."""

import msgspec
from starlette.types import Send

from holdfast.broker.http_client import Headers
from holdfast.http_connection import INVALID_KEY_MESSAGE, error_body

INVALID_KEY = error_body(401, "invalid_api_key", INVALID_KEY_MESSAGE)


async def send_response(send: Send, status: int, body: bytes, kind: str, headers: Headers | None = None) -> None:
    about = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, document: object, headers: Headers | None = None) -> None:
    await send_response(send, status, msgspec.json.encode(document), "application/json", headers)


def error(code: str, message: str) -> dict[str, object]:
    """Build the body of a server error."""
    return error_body(503, code, message)


async def send_redirect(send: Send, target: str) -> None:
    """Redirect with a GET."""
    headers = [(b"location", target.encode("latin-1", "replace")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
