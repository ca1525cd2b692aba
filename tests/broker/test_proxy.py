"""One request and its response: what is forwarded, what is not, and what happens when the worker dies meanwhile."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from holdfast.broker import http_client
from holdfast.model.errors import Unavailable
from tests.broker.test_stream_resume import chunk, frame
from tests.broker.workers import DIES, OK, Client, Part, header, says, scripted

CHAT = "/v1/chat/completions"
TURNS = "/v1/sessions/hf-x/turns"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
LEAVING = b'HTTP/1.1 503 Service Unavailable\r\ncontent-length: 24\r\n\r\n{"error":{"message":""}}'


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


async def test_hop_by_hop_headers_are_not_forwarded(tmp_path: Path) -> None:
    given = {
        "connection": "keep-alive, x-private, Content-Length, host",
        "keep-alive": "timeout=5",
        "te": "trailers",
        "upgrade": "h2c",
        "proxy-authorization": "Basic x",
        "x-private": "1",
        "x-session-key": "mine",
        "authorization": "Bearer of-the-user",
        "x-api-key": "of-the-user",
        "cookie": "holdfast_other=secret",
    }
    answer = b"HTTP/1.1 200 OK\r\nconnection: close, x-inner\r\nx-inner: 1\r\nx-outer: 1\r\ncontent-length: 2\r\n\r\nok"
    async with scripted(tmp_path, says(answer)) as worker:
        client = await Client("POST", "/v1/sessions", b"{}", given).ask(worker)

    [request] = worker.heard
    for name in (b"keep-alive", b"te", b"upgrade", b"proxy-authorization", b"x-private", b"x-api-key", b"cookie"):
        assert header(request, name) is None
    assert header(request, b"connection") == b"close"
    assert header(request, b"authorization") == b"Bearer worker-key"
    assert header(request, b"x-session-key") == b"mine"
    assert header(request, b"host") == b"holdfast.example"
    assert header(request, b"content-length") == b"2"
    assert client.headers == {"x-outer": "1", "content-length": "2"}
    assert client.body == b"ok"


async def test_a_worker_receives_only_its_own_cookie(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(OK)) as worker:
        await Client("GET", "/", headers={"cookie": "holdfast_a=1; holdfast_b=2"}).ask(worker, b"holdfast_a=1")

    assert header(worker.heard[0], b"cookie") == b"holdfast_a=1"


async def test_a_body_without_a_length_is_forwarded_in_chunks(tmp_path: Path) -> None:
    pieces = [b"one", b"two" * 50_000, b"three"]
    async with scripted(tmp_path, says(OK)) as worker:
        await Client("POST", CHAT, pieces, {"transfer-encoding": "chunked"}).ask(worker)

    request = worker.heard[0]
    assert header(request, b"content-length") is None
    assert b"".join(pieces[:1]) in request
    assert request.endswith(b"5\r\nthree\r\n0\r\n\r\n")


async def test_a_response_is_forwarded_as_it_arrives(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def play(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b": first\n\n"))
        await writer.drain()
        await go_on.wait()
        writer.write(chunked(b": second\n\n", b""))

    async with scripted(tmp_path, play) as worker:
        client = Client("GET", "/v1/sessions/x/events")
        asking = asyncio.ensure_future(client.ask(worker))
        await asyncio.wait_for(client.has_heard.wait(), 30)
        assert client.body == b": first\n\n"
        go_on.set()
        await asking

    assert client.body == b": first\n\n: second\n\n"
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize(("method", "path"), [("POST", CHAT), ("POST", TURNS), ("POST", "/v1/responses")])
async def test_a_request_that_starts_a_turn_is_repeated_with_one_key(tmp_path: Path, method: str, path: str) -> None:
    async with scripted(tmp_path, DIES, DIES, says(OK)) as worker:
        client = await Client(method, path, b'{"input": "hello"}').ask(worker)

    assert client.body == b"ok"
    assert len(worker.heard) == 3
    assert len(set(worker.heard)) == 1, "they are the same to the last byte"
    assert header(worker.heard[0], b"idempotency-key") is not None


async def test_a_large_body_can_be_repeated_too(tmp_path: Path) -> None:
    body = b"x" * 2_000_000
    async with scripted(tmp_path, DIES, says(OK)) as worker:
        client = await Client("POST", CHAT, body).ask(worker)

    assert client.body == b"ok"
    assert all(request.endswith(body) for request in worker.heard)


async def test_the_idempotency_key_of_the_client_is_kept(tmp_path: Path) -> None:
    async with scripted(tmp_path, DIES, says(OK)) as worker:
        await Client("POST", CHAT, b"{}", {"idempotency-key": "mine"}).ask(worker)

    assert [header(request, b"idempotency-key") for request in worker.heard] == [b"mine", b"mine"]


async def test_requests_that_only_read_are_repeated(tmp_path: Path) -> None:
    async with scripted(tmp_path, DIES, says(OK)) as worker:
        client = await Client("GET", "/v1/sessions").ask(worker)

    assert client.body == b"ok"


async def test_a_request_with_an_unknown_outcome_is_not_repeated_and_that_is_reported(tmp_path: Path) -> None:
    async with scripted(tmp_path, DIES) as worker:
        client = await Client("POST", "/v1/sessions/x/fork", b"{}").ask(worker)

    assert client.status == 503
    assert client.headers["x-should-retry"] == "false"
    assert "the outcome is unknown" in json.loads(client.body)["error"]["message"]
    assert len(worker.heard) == 1


async def test_a_503_of_a_worker_that_shuts_down_is_retried(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(LEAVING), says(OK)) as worker:
        worker.leaves = True
        client = await Client("POST", CHAT, b"{}").ask(worker)

    assert client.status == 200


async def test_a_503_of_a_running_worker_is_forwarded(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(LEAVING)) as worker:
        client = await Client("POST", CHAT, b"{}").ask(worker)

    assert client.status == 503
    assert client.body == b'{"error":{"message":""}}'


async def test_a_worker_that_always_dies_is_no_longer_retried(tmp_path: Path) -> None:
    async with scripted(tmp_path, *([DIES] * 12)) as worker:
        with pytest.raises(Unavailable):
            await Client("GET", "/v1/sessions").ask(worker)


async def test_a_stream_resumes_at_the_exact_character(tmp_path: Path) -> None:
    first = STREAM + chunked(chunk({"role": "assistant", "content": ""}), chunk({"content": "Hello wo"}))
    second = STREAM + chunked(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hello world"}),
        chunk({}, "stop"),
        frame(b"[DONE]"),
        b"",
    )
    async with scripted(tmp_path, says(first), says(second)) as worker:
        client = await Client("POST", CHAT, b'{"stream": true}').ask(worker)

    assert client.body.count(b'"role"') == 1
    assert b'"content":"rld"' in client.body.replace(b" ", b"")
    assert client.body.endswith(b"data: [DONE]\n\n")
    assert len({header(request, b"idempotency-key") for request in worker.heard}) == 1


async def test_a_stream_that_differs_after_a_restart_ends_with_an_error(tmp_path: Path) -> None:
    first = STREAM + chunked(chunk({"content": "Yes"}))
    second = STREAM + chunked(chunk({"content": "No!"}), b"")
    async with scripted(tmp_path, says(first), says(second)) as worker:
        client = await Client("POST", CHAT, b'{"stream": true}').ask(worker)

    *_, error, done, end = client.body.split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "unavailable"
    assert (done, end) == (b"data: [DONE]", b"")


async def test_an_event_stream_just_ends_so_that_its_client_reconnects(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(STREAM + chunked(b"id: 1\ndata: {}\n\n"))) as worker:
        client = await Client("GET", "/v1/sessions/x/events").ask(worker)

    assert client.body == b"id: 1\ndata: {}\n\n"
    assert client.sent[-1]["more_body"] is False


async def test_an_incomplete_response_is_not_forwarded_as_complete(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")) as worker:
        client = Client("GET", "/v1/sessions")
        with pytest.raises(Unavailable):
            await client.ask(worker)

    assert client.sent[-1] == {"type": "http.response.body", "body": b"half", "more_body": True}


async def test_invalid_http_is_not_a_response(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(b"SSH-2.0-OpenSSH\r\n\r\n"), says(OK)) as worker:
        client = await Client("GET", "/v1/sessions").ask(worker)

    assert client.body == b"ok"


async def test_endless_headers_are_not_a_response(tmp_path: Path) -> None:
    endless = says(b"HTTP/1.1 200 OK\r\n", *[b"x-more: " + b"x" * 50_000 + b"\r\n"] * 8)
    async with scripted(tmp_path, *[endless] * 12) as worker:
        with pytest.raises(Unavailable):
            await Client("GET", "/v1/sessions").ask(worker)


@pytest.mark.parametrize("piece", [b"x" * 65536, b"y\r\nx: " * 10000], ids=["one", "many"])
async def test_data_after_the_body_of_a_response_is_dropped(tmp_path: Path, piece: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(b"ok") + b"0\r\nx: "
    async with scripted(tmp_path, endless(answer, piece)) as worker:
        with pytest.raises(Unavailable, match="during the response"):
            await asyncio.wait_for(Client("GET", "/v1/sessions").ask(worker), 20)


async def test_a_request_of_the_broker_itself_has_a_size_limit(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"
    async with scripted(tmp_path, endless(answer, b"x" * 65536)) as worker:
        with pytest.raises(http_client.ConnectionBroken, match="the response is too large"):
            await http_client.get(worker.socket, b"/health", "key")


def endless(answer: bytes, piece: bytes) -> Part:
    """Sends the first part once, and then the second part endlessly."""

    async def play(request: bytes, writer: asyncio.StreamWriter) -> None:
        await says(answer, *[piece] * 200)(request, writer)
        await asyncio.sleep(600)

    return play


async def test_a_client_that_disconnects_ends_the_connection(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def play(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        with contextlib.suppress(ConnectionError):
            while not writer.transport.is_closing():
                writer.write(chunked(b": again\n\n"))
                await writer.drain()
                await asyncio.sleep(0)
        closed.set()

    async with scripted(tmp_path, play) as worker:
        client = Client("GET", "/v1/sessions/x/events")
        asking = asyncio.ensure_future(client.ask(worker))
        await asyncio.wait_for(client.has_heard.wait(), 30)
        client.leaves.set()
        await asyncio.wait_for(asking, 30)
        await asyncio.wait_for(closed.wait(), 30)


async def test_a_head_response_has_no_body(tmp_path: Path) -> None:
    async with scripted(tmp_path, says(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n")) as worker:
        client = await Client("HEAD", "/v1/sessions").ask(worker)

    assert client.headers["content-length"] == "500"
    assert client.body == b""


async def test_a_socket_in_a_deep_directory_can_be_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    async with scripted(deep, says(OK)) as worker:
        client = await Client("GET", "/v1/sessions").ask(worker)

    assert client.body == b"ok"


@pytest.mark.parametrize(("headers", "retry"), [({}, "false"), ({"idempotency-key": "mine"}, "true")])
async def test_a_turn_that_started_before_the_disk_quota_is_not_started_twice(
    tmp_path: Path, headers: dict[str, str], retry: str
) -> None:
    async with scripted(tmp_path, DIES) as worker:
        worker.full = "too many files"
        client = await Client("POST", CHAT, b"{}", headers).ask(worker)

    assert client.status == 507
    assert client.headers["x-should-retry"] == retry
    assert b'"code":"disk_full"' in client.body
    assert b"too many files; if the request was accepted before, it continues then" in client.body
