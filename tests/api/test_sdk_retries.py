"""The automatic retry of a client joins the turn that it repeats: one turn, one effect, one reply."""

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import openai
import pytest

from tests.api.serving import KEY, SLOWLY, Server, ask, events, session, told
from tests.crash.programs import wait_until

pytestmark = pytest.mark.timeout(180)
RETRY = {"x-stainless-retry-count": "1"}


class Proxy:
    """A load balancer in front of the server: requests wait while the server is down."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_open = threading.Event()
        """Whether requests are passed on."""
        self.is_open.set()
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.count += 1
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        self.is_open.wait()
        with client, socket.create_connection(("127.0.0.1", self._server.port)) as there:
            threading.Thread(target=_copy, args=(client, there), daemon=True).start()
            _copy(there, client)

    def close(self) -> None:
        self._listener.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def before(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()


def paid(server: Server) -> int:
    file = server.home.parent / "paid.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def turn_count(server: Server) -> int:
    with server.http() as http:
        found = http.get("/v1/sessions").json()["sessions"]
        return sum(one["turn_count"] for one in found)


def has_begun_to_speak(server: Server) -> bool:
    """Whether the reply is being generated and part of it is stored."""
    return paid(server) == 1 and any(b"word3" in file.read_bytes() for file in server.home.glob("holdfast.db*"))


def kill_in_mid_turn(server: Server, proxy: Proxy) -> None:
    wait_until(lambda: has_begun_to_speak(server), "the turn is in the middle of its reply")
    proxy.is_open.clear()
    server.kill()
    server.restart()
    proxy.is_open.set()


def test_the_official_client_with_its_defaults_causes_one_effect_and_gets_one_reply(own: Server) -> None:
    answers: list[Any] = []
    with before(own) as proxy:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key=KEY)

        def pay() -> None:
            asked: list[Any] = [{"role": "user", "content": "pay 100 EUR"}]
            answers.append(client.chat.completions.create(model=own.model("pays"), messages=asked))

        with client:
            asking = threading.Thread(target=pay)
            asking.start()
            kill_in_mid_turn(own, proxy)
            asking.join()
        assert proxy.count >= 2, "the client has tried again by itself"

    assert [answer.choices[0].message.content for answer in answers] == [SLOWLY]
    assert paid(own) == 1
    assert turn_count(own) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("headers", [RETRY, {}], ids=["numbered", "plain"])
def test_the_retry_of_a_stream_interrupted_by_a_crash_continues_its_turn(
    own: Server, path: str, headers: dict[str, str]
) -> None:
    words: dict[str, Any] = {"messages": [{"role": "user", "content": "pay"}]} if "chat" in path else {"input": "pay"}
    body = {"model": own.model("pays"), "stream": True, **words}
    with before(own) as proxy, own.http() as http:
        there = httpx.URL(f"http://127.0.0.1:{proxy.port}{path}")

        def read() -> None:
            with suppress(httpx.TransportError):
                http.post(there, json=body)

        reading = threading.Thread(target=read)
        reading.start()
        kill_in_mid_turn(own, proxy)
        reading.join()
        again = http.post(path, json=body, headers=headers)

    assert SLOWLY in (told(events(again.text)) if "chat" in path else again.text)
    assert paid(own) == 1
    assert turn_count(own) == 1


def test_a_numbered_retry_joins_a_turn_that_still_runs(server: Server) -> None:
    words, found = uuid.uuid4().hex, []

    def one(headers: dict[str, str]) -> None:
        with server.http() as http:
            found.append(ask(http, words, model=server.model("slow"), headers=headers))

    first = threading.Thread(target=one, args=({},))
    first.start()
    with server.http() as http:
        wait_until(lambda: words in http.get("/v1/sessions").text, "the first attempt was taken in")
    one(RETRY)
    first.join()

    assert len({response.headers["x-turn-id"] for response in found}) == 1
    assert {response.json()["choices"][0]["message"]["content"] for response in found} == {SLOWLY}


def test_a_numbered_retry_after_a_disconnect_gets_the_reply_of_its_turn(server: Server) -> None:
    words = uuid.uuid4().hex
    with server.http() as hasty, pytest.raises(httpx.ReadTimeout):
        hasty.timeout = httpx.Timeout(0.5)
        ask(hasty, words, model=server.model("slow"))
    with server.http() as http:
        retried = ask(http, words, model=server.model("slow"), headers=RETRY)
        assert http.get("/v1/sessions").text.count(words) == 1, "there is one session with these words"
        again = ask(http, words, model=server.model("slow"))

        assert retried.json()["choices"][0]["message"]["content"] == SLOWLY
    assert retried.headers["x-turn-id"] != again.headers["x-turn-id"]


def test_two_equal_messages_sent_on_purpose_are_two_turns(http: httpx.Client) -> None:
    name = {"x-session-key": uuid.uuid4().hex}

    first, second = ask(http, "continue", headers=name), ask(http, "continue", headers=name)
    third = ask(http, "continue", headers={**name, **RETRY})

    turns = {one.headers["x-turn-id"] for one in (first, second, third)}
    assert len(turns) == 3, "the third was answered before: its first attempt did not get through"


def test_equal_retries_of_other_clients_do_not_join(server: Server) -> None:
    words, found = uuid.uuid4().hex, []

    def one(user: str, headers: dict[str, str]) -> None:
        with server.http() as http:
            found.append(ask(http, words, model=server.model("slow"), headers=headers, user=user))

    first = threading.Thread(target=one, args=("anna", {}))
    first.start()
    with server.http() as http:
        wait_until(lambda: words in http.get("/v1/sessions").text, "the first attempt was taken in")
    one("bert", RETRY)
    first.join()

    assert len({session(response) for response in found}) == 2


def test_equal_messages_after_a_restart_are_two_turns_if_the_first_was_answered(own: Server) -> None:
    name = {"x-session-key": "restart"}
    with own.http() as http:
        first = ask(http, "continue", headers=name)
        own.kill()
        own.restart()
        second = ask(http, "continue", headers=name)

    assert first.headers["x-turn-id"] != second.headers["x-turn-id"]
