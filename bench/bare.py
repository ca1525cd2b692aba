"""The baseline of the API: the same HTTP stack, and an answer of the same size that nothing is kept of.

It listens as our server does, reads the request as JSON and answers at once. What ours takes beyond that is what a
durable turn costs.
"""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from holdfast import eventstream
from holdfast.api import server, stream

WORDS = "You said: Are you there?"


async def answer(request: Request) -> Response:
    """What a client hears from our server, but for the ids."""
    body = msgspec.json.decode(await request.body())
    document = {"id": "x" * 25, "object": "answer", "model": "scripted:echo", "text": WORDS, "about": "x" * 400}
    if not body.get("stream"):
        return Response(msgspec.json.encode(document), media_type="application/json")
    return eventstream.EventStream(_pieces(document), {})


async def _pieces(document: dict[str, str]) -> AsyncGenerator[bytes, None]:
    for _ in range(3):
        yield stream.event(document)
    yield stream.DONE


def main() -> None:
    listener = server.listen("127.0.0.1", 0)
    routes = [Route(path, answer, methods=["POST"]) for path in ("/v1/chat/completions", "/v1/responses")]
    print(f"{server.address(listener)};", flush=True)
    asyncio.run(server.Server(Router(routes), lambda: None).serve([listener]))


if __name__ == "__main__":
    main()
