"""What the broker says itself, in the shape of every other answer."""

import msgspec
from starlette.types import Send

from holdfast.broker.wire import Headers


async def send_whole(send: Send, status: int, body: bytes, kind: str, headers: Headers | None = None) -> None:
    about = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, document: object, headers: Headers | None = None) -> None:
    await send_whole(send, status, msgspec.json.encode(document), "application/json", headers)


def error(code: str, message: str) -> dict[str, object]:
    """An error of the server's side."""
    return {"error": {"message": message, "type": "server_error", "code": code, "param": None}}


async def send_away(send: Send, target: str) -> None:
    """Somewhere else, with a GET."""
    headers = [(b"location", target.encode("latin-1", "replace")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
