"""Workers that are stopped one after the other under load: no client gets an error, and every turn continues."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from holdfast.engine.turn.recovery import LEFT
from holdfast.model.event import Recovered
from tests.crash.programs import wait_until
from tests.fleet.conftest import NewLoad, NewWorker
from tests.fleet.fleet import KEY, Worker, hold_against, hold_effects_against
from tests.fleet.test_takeover import ask, use_terminal
from tests.sampling import ROUNDS as WANTED

ROUNDS = max(1, WANTED // 20)
UNHEARD = {"ConnectError", "ReadError", "WriteError", "RemoteProtocolError", "CloseError"}
"""A refused connection: the request was never accepted."""


@pytest.mark.crash
@pytest.mark.timeout(120 + 120 * ROUNDS)
async def test_promise_22_workers_are_restarted_one_after_the_other_and_no_client_gets_an_error(
    store: str, new_worker: NewWorker, new_load: NewLoad, tmp_path: Path
) -> None:
    workers = [new_worker(f"host-{name}", store) for name in "abc"]
    done = tmp_path / "done"
    load = new_load(*(worker.url for worker in workers), tool=f"sleep 0.3; echo {{word}} | tee -a {done}")

    load.wait_for_more(10)
    for worker in workers * ROUNDS:
        worker.stop()
        worker.restart()
        load.wait_for_more(6)
    report = load.finish()

    print(f"sent again: {dict(report.again)}")
    assert set(report.again) <= UNHEARD, "every accepted request was answered"
    logs = await hold_against(report, store)
    hold_effects_against(report, done)
    assert report.unknown == [], "the current step was finished"
    recovered = [e.event for entries in logs.values() for e in entries if isinstance(e.event, Recovered)]
    assert recovered, "turns were continued by others"
    assert {event.evidence for event in recovered} == {LEFT}


def is_open(worker: Worker) -> bool:
    """Whether it accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", worker.port)).close()
    except ConnectionRefusedError:
        return False
    return True


def say_slowly(worker: Worker, path: str, body: dict[str, object]) -> bytes:
    """Start a request before the worker is stopped, complete it after it stopped accepting, and return the response."""
    said = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(said)}\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", worker.port), timeout=60) as line:
        line.sendall(head.encode())
        assert line.recv(100).startswith(b"HTTP/1.1 100"), "it listens"
        line.sendall(said[:10])
        os.kill(worker.process.pid, signal.SIGTERM)
        wait_until(lambda: not is_open(worker), "its doors to close")
        time.sleep(1)  # more than enough to finish, because nothing runs
        line.sendall(said[10:])
        return b"".join(iter(lambda: line.recv(65536), b""))


@pytest.mark.crash
@pytest.mark.timeout(120)
def test_promise_22_a_request_during_a_shutdown_is_answered(store: str, new_worker: NewWorker) -> None:
    one, _ = new_worker("host-a", store), new_worker("host-b", store)

    asked = {"model": "holdfast", "messages": [{"role": "user", "content": "slowly said"}]}
    answer = say_slowly(one, "/v1/chat/completions", asked)
    code = one.process.wait(60)

    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b"slowly said" in answer
    assert code == 0, one.process.stderr


@pytest.mark.crash
@pytest.mark.timeout(120)
def test_promise_22_a_turn_of_a_worker_that_shuts_down_is_continued_by_another(
    store: str, new_worker: NewWorker
) -> None:
    one, other = new_worker("host-a", store), new_worker("host-b", store)
    with other.http() as http:
        session = http.post("/v1/sessions", json={}).raise_for_status().json()["id"]

        answer = say_slowly(one, f"/v1/sessions/{session}/turns", {"input": "slowly said"})
        code = one.process.wait(60)

        assert answer.startswith(b"HTTP/1.1 202"), answer
        assert code == 0, one.process.stderr
        turn = json.loads(answer.partition(b"\r\n\r\n")[2])["turn_id"]
        place = f"/v1/sessions/{session}/turns/{turn}"
        wait_until(lambda: http.get(place).raise_for_status().json()["state"] == "done", "its turn to end")


@pytest.mark.crash
@pytest.mark.timeout(120)
def test_clients_are_disconnected_at_once_if_configured_and_another_worker_continues(
    store: str, new_worker: NewWorker, tmp_path: Path
) -> None:
    one = new_worker("host-a", store, api={"handover_seconds": 0})
    other = new_worker("host-b", store)
    started, finished = tmp_path / "started", tmp_path / "finished"
    command = f"touch {started}; while ! [ -e {finished} ]; do sleep 0.1; done; echo finished"
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(ask(one, "mine", use_terminal(command), key="k1")))
    thread.start()
    wait_until(started.exists, "the tool")
    os.kill(one.process.pid, signal.SIGTERM)
    wait_until(lambda: not is_open(one), "its doors to close")
    finished.touch()
    thread.join()
    again = ask(other, "mine", use_terminal(command), key="k1")

    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "unavailable")
    assert again.status_code == 200
    assert "finished" in again.json()["choices"][0]["message"]["content"]
