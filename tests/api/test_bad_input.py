"""Every invalid request gets a documented error in OpenAI's format and leaves the log well-formed. None gives a 500."""

import base64
import json
import socket
import subprocess
import sys
import uuid
from typing import Any

import httpx
import pytest

from tests.api.serving import KEY, Server, as_messages, ask, session, text

USER = {"role": "user", "content": "hello"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "holdfast", "messages": [USER], **more}


def part(**more: Any) -> dict[str, Any]:
    return body(messages=[{"role": "user", "content": [more]}])


WRONG: list[tuple[Any, int, str, str | None]] = [
    (b"", 400, "invalid_json", None),
    (b"{", 400, "invalid_json", None),
    (b"\xff\xfe", 400, "invalid_json", None),
    (b"[]", 400, "invalid_json", None),
    (b'"text"', 400, "invalid_json", None),
    (b'{"a":' * 100_000, 400, "invalid_json", None),
    (b'{"model": "holdfast", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, "invalid_json", None),
    ({}, 400, "invalid_type", "model"),
    ({"model": "holdfast"}, 400, "invalid_type", "messages"),
    ({"messages": [USER]}, 400, "invalid_type", "model"),
    (body(model=7), 400, "invalid_type", "model"),
    (body(model="gpt-9"), 404, "model_not_found", "model"),
    (body(model=""), 404, "model_not_found", "model"),
    (body(model="scripted:/etc/passwd.json"), 404, "model_not_found", "model"),
    (body(messages="hello"), 400, "invalid_type", "messages"),
    (body(messages=[]), 400, "invalid_request", "messages"),
    (body(messages=["hello"]), 400, "invalid_type", "messages[0]"),
    (body(messages=[{"content": "hello"}]), 400, "invalid_type", "messages[0].role"),
    (body(messages=[{"role": "king", "content": "hello"}]), 400, "invalid_type", "messages[0].role"),
    (body(messages=[{"role": "user"}]), 400, "invalid_request", "messages[0].content"),
    (body(messages=[{"role": "user", "content": 7}]), 400, "invalid_type", "messages[0].content"),
    (body(messages=[{"role": "user", "content": []}]), 400, "invalid_request", "messages[0].content"),
    (body(messages=[{"role": "system", "content": "Be kind."}]), 400, "invalid_request", "messages"),
    (body(messages=as_messages("hello", "hi")), 400, "invalid_request", "messages"),
    (body(messages=[{"role": "tool", "content": "x"}]), 400, "invalid_request", "messages[0].tool_call_id"),
    (body(messages=[{"role": "tool", "content": "x", "tool_call_id": "call_9"}]), 400, "invalid_request", "messages"),
    (
        body(
            messages=[
                USER,
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "x", "tool_call_id": "call_1"},
                {"role": "tool", "content": "x", "tool_call_id": "call_1"},
            ]
        ),
        400,
        "invalid_request",
        "messages",
    ),
    (body(messages=[{**USER, "tool_calls": [CALL]}]), 400, "invalid_request", "messages[0].tool_calls"),
    (
        body(messages=[USER, {"role": "assistant", "tool_calls": [CALL, CALL]}, USER]),
        400,
        "invalid_request",
        "messages[1].tool_calls",
    ),
    (part(type="input_audio", input_audio={}), 400, "unsupported_content", "messages[0].content[0].type"),
    (part(type="text"), 400, "invalid_type", "messages[0].content[0].text"),
    (part(), 400, "unsupported_content", "messages[0].content[0].type"),
    (part(type="image_url", image_url="x"), 400, "invalid_type", "messages[0].content[0].image_url.url"),
    (part(type="image_url", image_url={"url": "ftp://x/y"}), 400, "invalid_image", "messages[0].content[0].image_url"),
    (part(type="image_url", image_url={"url": "file:///etc/passwd"}), 400, "invalid_image", None),
    (part(type="image_url", image_url={"url": "data:image/png;base64,aGVsbG8="}), 400, "invalid_image", None),
    (part(type="file", file={"file_id": "file-1"}), 400, "unsupported_content", "messages[0].content[0].file"),
    (part(type="file", file={"file_data": "hello"}), 400, "invalid_file", "messages[0].content[0].file"),
    (body(n=2), 400, "unsupported_parameter", "n"),
    (body(logprobs=True), 400, "unsupported_parameter", "logprobs"),
    (body(functions=[]), 400, "unsupported_parameter", "functions"),
    (body(audio={}), 400, "unsupported_parameter", "audio"),
    (body(nonsense=1), 400, "unsupported_parameter", "nonsense"),
    (body(top_p=0.5), 400, "unsupported_parameter", "top_p"),
    (body(stop=["x"]), 400, "unsupported_parameter", "stop"),
    (body(temperature=3), 400, "invalid_value", "temperature"),
    (body(temperature="hot"), 400, "invalid_type", "temperature"),
    (body(max_tokens=0), 400, "invalid_value", "max_tokens"),
    (body(max_tokens=True), 400, "invalid_type", "max_tokens"),
    (body(max_completion_tokens=10**30), 400, "invalid_value", "max_completion_tokens"),
    (body(stream="yes"), 400, "invalid_type", "stream"),
    (body(stream_options=7), 400, "invalid_type", "stream_options"),
    (body(tools=[{"type": "function"}]), 400, "invalid_type", "tools[0].function"),
    (body(tools=[{"type": "web_search"}]), 400, "invalid_type", "tools[0].type"),
    (
        body(tools=[{"type": "function", "function": {"name": "a b"}}]),
        400,
        "invalid_value",
        "tools[0].function.name",
    ),
    (body(tools=[TOOL, TOOL]), 400, "invalid_value", "tools"),
    (body(tool_choice="required"), 400, "invalid_value", "tool_choice"),
    (body(tool_choice={"type": "function", "function": {"name": "x"}}), 400, "invalid_value", "tool_choice"),
    (body(tool_choice={"type": "function", "function": 7}), 400, "invalid_value", "tool_choice"),
    (body(user=7), 400, "invalid_type", "user"),
    (body(prompt_cache_key="\n"), 400, "invalid_header", "prompt_cache_key"),
    (body(messages=[USER] * 20_001), 400, "too_many_messages", "messages"),
    (body(messages=[USER] * 100_000), 400, "too_many_messages", "messages"),
]


@pytest.mark.parametrize(
    ("sent", "status", "code", "param"), WRONG, ids=[f"{n}-{row[2]}" for n, row in enumerate(WRONG)]
)
def test_an_invalid_request_is_refused_and_the_parameter_is_named(
    http: httpx.Client, sent: Any, status: int, code: str, param: str
) -> None:
    content = sent if isinstance(sent, bytes) else json.dumps(sent).encode()

    response = http.post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})

    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "code", "param"}
    assert error["code"] == code
    assert param is None or error["param"] == param
    assert error["message"]


NEUTRAL = [
    {"n": 1, "top_p": 1.0, "frequency_penalty": 0, "presence_penalty": 0.0, "logprobs": False, "logit_bias": {}},
    {"stop": None, "seed": None, "response_format": {"type": "text"}, "parallel_tool_calls": True, "store": False},
    {"stream_options": None, "tools": None, "tool_choice": "auto", "metadata": {}, "user": "me", "max_tokens": 9},
]


@pytest.mark.parametrize("more", NEUTRAL)
def test_parameters_with_their_default_value_are_accepted(http: httpx.Client, more: dict[str, Any]) -> None:
    assert http.post("/v1/chat/completions", json=body(**more)).status_code == 200


@pytest.mark.parametrize(("value", "same"), [(True, 1), (False, 0)])
def test_a_boolean_is_not_accepted_as_a_number(http: httpx.Client, value: bool, same: int) -> None:
    assert http.post("/v1/chat/completions", json=body(n=value)).status_code == 400


def test_a_request_over_the_limit_is_refused_before_it_is_read(http: httpx.Client) -> None:
    image = base64.b64encode(bytes(30 * 2**20)).decode()

    response = http.post(
        "/v1/chat/completions",
        json=part(type="image_url", image_url={"url": f"data:image/png;base64,{image}"}),
    )

    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


def test_a_body_without_a_length_is_counted_while_it_is_received(http: httpx.Client) -> None:
    def pieces() -> Any:
        for _ in range(40):
            yield b" " * 2**20

    response = http.post("/v1/chat/completions", content=pieces())

    assert response.status_code == 413


def test_an_image_over_its_own_limit_is_refused_although_the_body_is_within_its_limit(http: httpx.Client) -> None:
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(6 * 2**20)).decode()

    response = http.post(
        "/v1/chat/completions",
        json=part(type="image_url", image_url={"url": f"data:image/png;base64,{image}"}),
    )

    assert response.status_code == 413
    assert response.json()["error"]["code"] == "image_too_large"


def test_a_session_in_the_trash_is_not_found(server: Server, http: httpx.Client) -> None:
    gone = session(ask(http, "hello"))
    command = [sys.executable, "-m", "holdfast", "--home", str(server.home), "sessions", "delete", gone]
    subprocess.run(command, check=True, capture_output=True)

    response = ask(http, "hello", headers={"x-session-id": gone})

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "session_not_found"


@pytest.mark.parametrize(
    "line", [b"x-session-key: a\x00b", b"x-session-key: a\x1bb", b"x session: a", b"x-\xff: a", b"\x01"]
)
def test_a_header_with_control_characters_gets_the_usual_error_document(server: Server, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n".encode()
        connection.sendall(head + line + b"\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        answer = b""
        while piece := connection.recv(65536):
            answer += piece

    status, _, content = answer.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 400")
    assert json.loads(content)["error"].keys() == {"message", "type", "code", "param"}


def test_too_many_headers_are_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        answer = b""
        try:
            for number in range(4000):
                connection.sendall(f"x-{number}: {'y' * 100}\r\n".encode())
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionError:
            pass

    assert not answer or answer.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PUT", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/%00", 404, "not_found"),
        ("GET", "/v1/../../etc/passwd", 404, "not_found"),
    ],
)
def test_an_unknown_path_gets_the_usual_error_document(
    http: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    response = http.request(method, path)

    assert response.status_code == status
    assert response.json()["error"]["code"] == code


def test_a_session_still_works_after_all_invalid_requests(http: httpx.Client) -> None:
    name = {"x-session-key": uuid.uuid4().hex}
    ask(http, "hello", headers=name)
    for wrong in (body(messages=[{"role": "tool", "content": "x", "tool_call_id": "no"}]), body(n=2)):
        assert http.post("/v1/chat/completions", json=wrong, headers=name).status_code == 400

    assert text(ask(http, "still there?", headers=name)) == "You said: still there?"
