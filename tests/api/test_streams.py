"""Promise 20: a client that disconnects does not stop the turn. Other failures of a stream."""

import json
import signal
import socket
import uuid

import httpx

from tests.api.serving import KEY, SLOWLY, Server, ask, events, session, told


def holdfast_json(server: Server, *args: str) -> object:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--home", str(server.home), *args, "--json"],
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def request_bytes(server: Server, body: dict[str, object], *headers: str) -> bytes:
    content = json.dumps(body).encode()
    head = [
        "POST /v1/chat/completions HTTP/1.1",
        f"host: 127.0.0.1:{server.port}",
        f"authorization: Bearer {KEY}",
        f"content-length: {len(content)}",
        *headers,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


def test_a_client_that_leaves_after_the_headers_does_not_stop_the_turn(server: Server, http: httpx.Client) -> None:
    key = uuid.uuid4().hex
    body = {"model": server.model("slow"), "messages": [{"role": "user", "content": "hello"}], "stream": True}
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request_bytes(server, body, f"x-session-key: {key}"))
        assert connection.recv(200).startswith(b"HTTP/1.1 200")

    after = ask(http, "and then?", headers={"x-session-key": key}, model="scripted:echo")

    shown = holdfast_json(server, "sessions", "show", session(after))
    said = [message["content"] for message in shown["messages"]]  # type: ignore[index]
    assert said[1].endswith(SLOWLY[-7:]), "the turn ran to its end"
    assert said[2:] == ["and then?", "You said: and then?"]


def test_a_client_that_reads_one_byte_at_a_time_delays_no_other_client(server: Server, http: httpx.Client) -> None:
    body = {"model": server.model("slow"), "messages": [{"role": "user", "content": "hello"}], "stream": True}
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(request_bytes(server, body, "connection: close"))
        head = b"".join(connection.recv(1) for _ in range(15))

        meanwhile = ask(http, "hello")
        rest = b""
        while piece := connection.recv(65536):
            rest += piece

    assert head == b"HTTP/1.1 200 OK"
    assert meanwhile.status_code == 200
    assert b"[DONE]" in rest and SLOWLY[-7:].encode() in rest


def test_sigterm_ends_streams_with_a_last_event_and_a_restart_resumes_the_turn(own: Server) -> None:
    key = uuid.uuid4().hex
    body = {"model": own.model("slow"), "messages": [{"role": "user", "content": "hello"}], "stream": True}
    lines: list[str] = []
    with (
        own.http() as http,
        http.stream("POST", "/v1/chat/completions", json=body, headers={"x-session-key": key}) as response,
    ):
        for line in response.iter_lines():
            lines.append(line)
            if len(lines) == 30:
                own.process.signal(signal.SIGTERM)
    code = own.process.wait()
    chunks = events("\n".join(lines))
    own.restart()

    assert code == 0
    assert chunks[-1] == "[DONE]"
    if "error" in chunks[-2]:
        assert chunks[-2]["error"]["code"] == "unavailable"
    else:
        assert told(chunks) == SLOWLY
    with own.http() as http:
        after = ask(http, "and then?", headers={"x-session-key": key}, model="scripted:echo")
    shown = holdfast_json(own, "sessions", "show", session(after))
    said = [m["content"] for m in shown["messages"] if not m["partial"]]  # type: ignore[index]
    assert said == ["hello", SLOWLY, "and then?", "You said: and then?"]


def test_a_turn_that_was_cut_off_by_a_kill_is_finished_after_the_restart(own: Server) -> None:
    key = uuid.uuid4().hex
    body = {"model": own.model("slow"), "messages": [{"role": "user", "content": "hello"}], "stream": True}
    try:
        with (
            own.http() as http,
            http.stream("POST", "/v1/chat/completions", json=body, headers={"x-session-key": key}) as response,
        ):
            for number, _ in enumerate(response.iter_lines()):
                if number == 30:
                    own.kill()
    except httpx.HTTPError:
        pass
    own.restart()

    with own.http() as http:
        after = ask(http, "and then?", headers={"x-session-key": key}, model="scripted:echo")

    shown = holdfast_json(own, "sessions", "show", session(after))
    said = [m["content"] for m in shown["messages"] if not m["partial"]]  # type: ignore[index]
    assert said == ["hello", SLOWLY, "and then?", "You said: and then?"]
