"""Responses over a WebSocket: the official client works unchanged, and wrong input gets a named error."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from holdfast.api.openai.responses.websocket import WaitingMessages
from holdfast.http_connection import SHUTDOWN_MARK, ConnectionLimits
from holdfast.http_server import HttpServer, listen
from holdfast.tasks import running
from tests.api.sdk_types import check_event
from tests.api.serving import KEY, SLOWLY, Server
from tests.crash.programs import wait_until

HANDSHAKE = (
    "GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\nconnection: upgrade\r\n"
    "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@contextmanager
def opened(server: Server, path: str = "/v1/responses", **headers: str) -> Iterator[ClientConnection]:
    sent = {"authorization": f"Bearer {KEY}", **headers}
    with connect(f"ws://127.0.0.1:{server.port}{path}", additional_headers=sent, open_timeout=30) as connection:
        yield connection


def create(connection: ClientConnection, **body: Any) -> None:
    connection.send(json.dumps({"type": "response.create", "model": "holdfast", **body}))


def read(connection: ClientConnection) -> list[dict[str, Any]]:
    """The events of one response, or the error."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["type"] not in ("error", "response.completed", "response.failed"):
        found.append(json.loads(connection.recv(timeout=30)))
        if found[-1]["type"] != "error":
            check_event(found[-1])
    return found


def answer(connection: ClientConnection, **body: Any) -> dict[str, Any]:
    create(connection, **body)
    return read(connection)[-1]


def text_of(event: dict[str, Any]) -> str:
    return "".join(part["text"] for item in event["response"]["output"] for part in item["content"])


def test_the_official_client_creates_responses_one_after_the_other(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        found: list[list[Any]] = []
        for said in ("one", "two"):
            connection.response.create(model="holdfast", input=said)
            found.append([])
            for event in connection:
                found[-1].append(event)
                if event.type == "response.completed":
                    break

    assert [events[-1].response.output_text for events in found] == ["You said: one", "You said: two"]
    for events in found:
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert client.responses.retrieve(events[0].response.id).status == "completed"


def test_messages_that_are_sent_at_once_are_answered_in_their_order(server: Server) -> None:
    with opened(server) as connection:
        for said in ("one", "two", "three"):
            create(connection, input=said)

        assert [text_of(read(connection)[-1]) for _ in range(3)] == [f"You said: {n}" for n in ("one", "two", "three")]


def test_headers_of_the_handshake_name_the_session(server: Server) -> None:
    with opened(server, **{"x-session-key": "by-socket"}) as connection:
        sessions = {answer(connection, input=said)["response"]["holdfast"]["session_id"] for said in "ab"}

    assert len(sessions) == 1


def test_an_unstored_response_is_known_on_its_connection_only(server: Server) -> None:
    with opened(server) as connection:
        first = answer(connection, input="one", store=False)["response"]
        second = answer(connection, input="two", store=False, previous_response_id=first["id"])["response"]
        stale = answer(connection, input="three", previous_response_id=first["id"])
    with opened(server) as other:
        missing = answer(other, input="four", previous_response_id=second["id"])

    assert second["holdfast"]["session_id"] == first["holdfast"]["session_id"]
    for error in (stale, missing):
        assert (error["type"], error["status"]) == ("error", 400)
        assert (error["error"]["code"], error["error"]["param"]) == (
            "previous_response_not_found",
            "previous_response_id",
        )


def test_a_failed_continuation_makes_an_unstored_response_unknown(server: Server) -> None:
    strange = [{"type": "function_call_output", "call_id": "unknown", "output": "?"}]
    with opened(server) as connection:
        first = answer(connection, input="one", store=False)["response"]["id"]

        assert answer(connection, input=strange, previous_response_id=first)["error"]["code"] == "invalid_request"
        again = answer(connection, input="two", previous_response_id=first)
        assert again["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        (b"\x00\x01", "invalid_json", None),
        ('{"model": "holdfast", "input": "Hello"}', "invalid_value", "type"),
        ('{"type": "response.cancel"}', "invalid_value", "type"),
        ('{"type": "response.create", "input": "Hello"}', "invalid_type", "model"),
        ('{"type": "response.create", "model": "holdfast", "input": []}', "invalid_request", "input"),
        ('{"type": "response.create", "model": "nobody", "input": "Hello"}', "model_not_found", "model"),
        ('{"type": "response.create", "model": "holdfast", "input": "a", "what": 1}', "unsupported_parameter", "what"),
        *(
            (
                f'{{"type": "response.create", "model": "holdfast", "input": "a", "{name}": {value}}}',
                "unsupported_parameter",
                name,
            )
            for name, value in [
                ("background", "true"),
                ("stream", "false"),
                ("stream_options", '{"include_obfuscation": true}'),
                ("generate", "false"),
                ("stream_id", '"a"'),
            ]
        ),
    ],
)
def test_a_wrong_message_is_named_and_the_connection_stays(
    server: Server, message: str | bytes, code: str, param: str | None
) -> None:
    with opened(server) as connection:
        connection.send(message)
        error = read(connection)[-1]

        assert error["status"] in (400, 404)
        assert (error["error"]["code"], error["error"]["param"]) == (code, param)
        assert text_of(answer(connection, input="still here")) == "You said: still here"


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/responses", {"authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ("/v1/responses", {"authorization": ""}, 401, "invalid_api_key"),
        ("/v1/responses", {"idempotency-key": "k"}, 400, "invalid_header"),
        ("/v1/other", {}, 404, "not_found"),
        ("/ui/live", {}, 404, "not_found"),
        ("/health", {}, 404, "not_found"),
    ],
)
def test_a_connection_that_is_not_allowed_is_refused_with_an_error(
    server: Server, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(server, path, **headers):
        pass

    response = refused.value.response
    assert (response.status_code, json.loads(response.body)["error"]["code"]) == (status, code)
    assert response.headers["x-request-id"]


def test_a_refused_connection_is_no_error_of_the_server(own: Server) -> None:
    with pytest.raises(InvalidStatus), opened(own, authorization="Bearer wrong"):
        pass
    own.stop()

    assert "ERROR" not in own.process.stderr


def test_a_request_without_an_upgrade_is_told_so(http: httpx.Client) -> None:
    response = http.get("/v1/responses")

    assert (response.status_code, response.json()["error"]["code"]) == (426, "upgrade_required")
    assert response.headers["upgrade"] == "websocket"


def test_an_oversized_message_closes_its_connection(tmp_path: Path) -> None:
    with Server(tmp_path / "home", max_body_mb=1) as server, opened(server) as other:
        with pytest.raises(ConnectionClosed) as closed, opened(server) as connection:
            create(connection, input="x" * 2**20)
            connection.recv(timeout=30)

        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        assert text_of(answer(other, input="not me")) == "You said: not me"


def test_too_many_waiting_messages_close_their_connection(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        with pytest.raises(ConnectionClosed) as closed, opened(server) as connection:
            for _ in range(18):
                create(connection, input="Hello", model=server.model("silent"))
            while True:
                connection.recv(timeout=30)

        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "more than 16 messages are waiting")
        server.stop()
        assert "Traceback" not in server.process.stderr


async def receive_all(*messages: dict[str, Any], max_size: int = 10) -> tuple[bool, str]:
    """Whether the server ends a connection with these messages, and which limit they exceed."""
    left = iter([{"type": "websocket.connect"}, *messages])

    async def receive() -> Any:
        return next(left)

    async def send(message: Any) -> None:
        assert message["type"] == "websocket.accept"

    websocket = WebSocket({"type": "websocket", "headers": []}, receive, send)
    await websocket.accept()
    waiting = WaitingMessages(websocket, max_size)
    return await waiting.receive(), waiting.excess


async def test_the_characters_that_wait_are_limited() -> None:
    message, end = {"type": "websocket.receive", "text": "12345"}, {"type": "websocket.disconnect", "code": 1000}

    assert await receive_all(message, message, end) == (False, "")
    assert await receive_all(message, message, message) == (False, "more than 10 characters are waiting")


async def test_a_client_that_closes_with_the_code_of_a_shutdown_has_left() -> None:
    end = {"type": "websocket.disconnect", "code": 1012, "reason": ""}

    assert await receive_all(end) == (False, "")
    assert await receive_all({**end, SHUTDOWN_MARK: True}) == (True, "")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x80\x81\0\0\0\0a", 1002),  # a continuation of nothing
        (b"\x01\x81\0\0\0\0a\x81\x81\0\0\0\0b", 1002),  # a message within a message
        (b"\x81\x01a", 1002),  # not masked
        (b"\x81\x81\0\0\0\0\xff", 1007),  # not UTF-8
        (b"\x83\x80\0\0\0\0", 1002),  # an unknown kind
    ],
)
def test_frames_that_violate_the_protocol_close_the_connection(server: Server, frame: bytes, code: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(HANDSHAKE.format(key=KEY).encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += client.recv(4096)
        assert received.startswith(b"HTTP/1.1 101")
        received = received.partition(b"\r\n\r\n")[2]
        client.sendall(frame)
        while piece := client.recv(4096):
            received += piece

    assert received[0] == 0x88 and int.from_bytes(received[2:4], "big") == code


async def test_a_half_open_connection_is_closed() -> None:
    left = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
        left.set()

    started = asyncio.Event()
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app, started.set, ConnectionLimits(head_seconds=0.01, ping_seconds=0.05), max_message=100)
    async with running(server.serve([listener])) as (task,):
        await started.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(HANDSHAKE.format(key="k").encode())
        head = await reader.readuntil(b"\r\n\r\n")
        rest = await reader.read()  # it answers no ping
        await left.wait()
        writer.close()
        server.stop()
        await asyncio.wait({task})
        listener.close()

    assert head.startswith(b"HTTP/1.1 101")
    assert rest[0] == 0x89, "a ping, not an error of HTTP"
    assert (1011).to_bytes(2, "big") + b"keepalive ping timeout" in rest


def test_a_client_that_leaves_does_not_stop_its_turn(server: Server, client: OpenAI) -> None:
    with opened(server) as connection:
        create(connection, input="Hello", model=server.model("slow"))
        id_ = json.loads(connection.recv(timeout=30))["response"]["id"]

    wait_until(lambda: client.responses.retrieve(id_).status == "completed", "the end of the turn")
    assert client.responses.retrieve(id_).output_text == SLOWLY


def test_a_shutdown_ends_the_connection_with_an_error_and_the_turn_resumes(own: Server) -> None:
    with opened(own) as idle, opened(own) as connection:
        create(connection, input="Hello", model=own.model("dawdling"))
        events = [json.loads(connection.recv(timeout=30)) for _ in range(5)]
        own.process.signal(15)
        events += read(connection)
        for one in (connection, idle):
            with pytest.raises(ConnectionClosed) as closed:
                one.recv(timeout=30)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012

    assert own.process.wait() == 0
    error = events.pop()
    assert (error["code"], error["sequence_number"]) == ("unavailable", events[-1]["sequence_number"])
    own.restart()
    with own.openai() as client:
        id_ = events[0]["response"]["id"]
        client.responses.cancel(id_)
        rest = list(client.responses.retrieve(id_, stream=True, starting_after=events[-1]["sequence_number"]))
    numbers = [event["sequence_number"] for event in events] + [event.sequence_number for event in rest]
    assert numbers == list(range(len(numbers)))
