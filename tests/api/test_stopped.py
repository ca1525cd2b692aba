"""A server that stops waits for its requests for a limited time; the remaining ones get an error that says whether to retry."""

import asyncio
import json
import socket
from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import http_server as server
from holdfast.api.transport.auth import KeyCheck
from holdfast.api.transport.middleware import AccessRules, RequestMiddleware


def gate_of(app: ASGIApp, count: Callable[[str, int], None]) -> RequestMiddleware:
    return RequestMiddleware(
        app, AccessRules(KeyCheck("k")), new_id=lambda: "req-1", monotonic=lambda: 0.0, count=count
    )


def scope_of(more: list[tuple[bytes, bytes]]) -> Scope:
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer k"), *more]
    return {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_request_cut_off_by_the_shutdown_says_whether_to_retry(keyed: bool) -> None:
    inside = asyncio.Event()
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        inside.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    gate = gate_of(app, lambda method, status: None)
    asking = asyncio.ensure_future(gate(scope_of([(b"idempotency-key", b"1")] * keyed), receive, send))
    await inside.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert sent[0]["status"] == 503
    assert dict(sent[0]["headers"])[b"x-should-retry"] == str(keyed).lower().encode()
    assert json.loads(sent[1]["body"])["error"]["code"] == "unavailable"


async def test_a_client_that_disconnects_during_its_request_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()

    pieces = iter([{"type": "http.request", "body": b'{"mod', "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Message:
        return next(pieces)

    async def send(message: Message) -> None:
        raise AssertionError("nobody hears it")

    told: list[tuple[str, int]] = []
    gate = gate_of(app, lambda method, status: told.append((method, status)))
    with caplog.at_level("INFO"):
        await gate(scope_of([]), receive, send)

    assert told == [("POST", 0)]
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nobody asks for anything")


@pytest.mark.parametrize("steps", range(6))
async def test_a_connection_made_during_the_shutdown_is_closed_and_does_not_delay_it(
    steps: int,
) -> None:
    listener = server.listen("127.0.0.1", 0)
    serving = server.HttpServer(nobody, lambda: None)
    serving.config.load()
    serving.lifespan = serving.config.lifespan_class(serving.config)
    await serving.startup([listener])

    with socket.create_connection(listener.getsockname()) as client:
        for _ in range(steps):  # the event loop has got this far when the server stops accepting
            await asyncio.sleep(0)
        async with asyncio.timeout(server.GRACE_SECONDS / 2):
            await serving.shutdown([listener])
        client.settimeout(5)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass  # it was not accepted
