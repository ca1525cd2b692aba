"""Two requests at once on one session, and many sessions at once."""

import asyncio
import threading
import uuid

import httpx
import pytest

from tests.api.serving import KEY, Server, ask, session, text


def running(server: Server, name: dict[str, str]) -> httpx.Response:
    """Start a slow turn and disconnect."""
    with server.http() as http:
        body = {"model": server.model("slow"), "messages": [{"role": "user", "content": "slowly"}], "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body, headers=name) as response:
            next(response.iter_lines())
            return response


def new_name() -> dict[str, str]:
    return {"x-session-key": uuid.uuid4().hex}


def test_a_second_request_waits_its_turn(server: Server, http: httpx.Client) -> None:
    name = new_name()
    running(server, name)

    second = ask(http, "hello", headers=name, model="scripted:echo")

    assert text(second) == "You said: hello"


def test_a_second_request_with_busy_reject_is_refused(server: Server, http: httpx.Client) -> None:
    name = new_name()
    running(server, name)

    second = ask(http, "hello", headers={**name, "x-busy": "reject"})

    assert second.status_code == 409
    assert second.json()["error"]["code"] == "session_busy"


def test_a_second_request_can_interrupt_the_first(server: Server, http: httpx.Client) -> None:
    name = new_name()
    outcome: list[httpx.Response] = []

    def first() -> None:
        with server.http() as mine:
            outcome.append(ask(mine, "slowly", headers=name, model=server.model("slow")))

    thread = threading.Thread(target=first)
    thread.start()
    while ask(http, "are you there?", headers={**name, "x-busy": "reject"}).status_code == 200:
        pass
    second = ask(http, "stop that", headers={**name, "x-busy": "interrupt"}, model="scripted:echo")
    thread.join()

    assert text(second) == "You said: stop that"
    assert outcome[0].status_code == 409
    assert outcome[0].json()["error"]["code"] == "interrupted"


def test_input_can_join_a_running_turn(server: Server, http: httpx.Client) -> None:
    name = new_name()
    running(server, name)

    joined = ask(http, "one more thing", headers={**name, "x-busy": "steer"})

    assert joined.status_code == 200


@pytest.mark.parametrize("value", ["soon", "", "QUEUE"])
def test_an_unknown_busy_mode_is_refused(http: httpx.Client, value: str) -> None:
    response = ask(http, "hello", headers={"x-busy": value})

    assert response.status_code == (200 if value.strip().lower() == "queue" else 400)


def test_many_requests_to_one_session_are_all_answered(server: Server) -> None:
    name = new_name()

    async def go() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {KEY}"}, timeout=60) as c:
            # Different words: the same ones again, after the first reply, would regenerate that reply.
            bodies = [{"model": "holdfast", "messages": [{"role": "user", "content": f"hello {n}"}]} for n in range(20)]
            return await asyncio.gather(*(c.post("/v1/chat/completions", json=body, headers=name) for body in bodies))

    replies = asyncio.run(go())

    assert [text(reply) for reply in replies] == [f"You said: hello {n}" for n in range(20)]
    assert len({session(reply) for reply in replies}) == 1
    assert sorted(int(reply.headers["x-session-seq"]) for reply in replies) == [1 + 4 * n for n in range(1, 21)]
