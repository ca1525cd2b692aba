"""`serve --processes`: several processes at one address, on one SQLite store, under a process that replaces those that end."""

import asyncio
import errno
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from holdfast.cli.server_processes import ServerProcesses
from holdfast.engine.turn.recovery import LEFT
from holdfast.model.event import Recovered
from holdfast.store.repos import input_queue
from holdfast.torture.scratch_store import open_url
from tests.crash.programs import Process, wait_until
from tests.fleet.conftest import NewLoad, NewWorker
from tests.fleet.fleet import Worker, hold_against, hold_effects_against
from tests.fleet.test_rolling import UNHEARD
from tests.fleet.test_takeover import use_terminal
from tests.sampling import ROUNDS as WANTED

KILLS = max(3, WANTED // 4)


def start(new_worker: NewWorker, processes: int = 2) -> Worker:
    return new_worker("host-a", "", serve=["--processes", str(processes)])


def store_of(worker: Worker) -> str:
    return f"sqlite:///{worker.home / 'holdfast.db'}"


def processes_of(worker: Worker) -> list[psutil.Process]:
    """The server processes, without what those have started."""
    return psutil.Process(worker.process.pid).children()


def wait_for_replacement(worker: Worker, ended: psutil.Process, count: int = 2) -> None:
    """Wait until all processes run and are known to the store."""

    def is_complete() -> bool:
        running = {one.pid for one in processes_of(worker)}
        with worker.http() as http:
            known = {one["pid"] for one in http.get("/v1/workers").json()["workers"] if one["state"] == "alive"}
        return ended.pid not in running and len(running) == count and running <= known

    wait_until(is_complete, "the replacement", every=0.1)


class Client:
    """A connection to one of the processes."""

    def __init__(self, worker: Worker) -> None:
        self.http = worker.http()
        self.http.get("/health").raise_for_status()
        port = worker.port
        held = {
            one.pid: {c.raddr.port for c in one.net_connections("tcp") if c.raddr and c.laddr.port == port}
            for one in processes_of(worker)
        }
        stream = self.http._transport._pool.connections[0]._connection._network_stream  # type: ignore[attr-defined]
        own = stream.get_extra_info("client_addr")[1]
        [self.pid] = [pid for pid, ports in held.items() if own in ports]

    def ask(self, name: str, words: str, key: str = "") -> httpx.Response:
        body = {"model": "holdfast", "messages": [{"role": "user", "content": words}]}
        headers = {"x-session-key": name, **({"idempotency-key": key} if key else {})}
        return self.http.post("/v1/chat/completions", json=body, headers=headers)


def connect_to_each(worker: Worker, stack: ExitStack) -> list[Client]:
    """One client of each of two processes."""
    clients: dict[int, Client] = {}
    while len(clients) < 2:
        client = Client(worker)
        stack.callback(client.http.close)
        clients[client.pid] = client
    return list(clients.values())


@pytest.mark.crash
@pytest.mark.timeout(120 + 20 * KILLS)
async def test_promise_22_no_message_is_lost_when_one_of_the_server_processes_is_killed(
    new_worker: NewWorker, new_load: NewLoad, tmp_path: Path
) -> None:
    worker, done = start(new_worker), tmp_path / "done"
    load = new_load(worker.url, tool=f"sleep 0.1; echo {{word}} | tee -a {done}")

    load.wait_for_more(6)
    for number in range(KILLS):
        killed = processes_of(worker)[number % 2]
        killed.kill()
        wait_for_replacement(worker, killed)
        load.wait_for_more(6)
    report = load.finish()
    with worker.http() as http:
        metrics = http.get("/metrics").text
    worker.stop()

    await hold_against(report, store_of(worker))
    hold_effects_against(report, done)
    replaced = [line for line in metrics.splitlines() if line.startswith("holdfast_process_replacements_total{")]
    assert sum(int(line.split()[-1]) for line in replaced) == KILLS
    assert worker.process.stderr.count("ended with signal 9; another one starts in") == KILLS


@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_promise_22_the_server_processes_are_restarted_one_after_the_other_and_no_client_gets_an_error(
    new_worker: NewWorker, new_load: NewLoad, tmp_path: Path
) -> None:
    worker, done = start(new_worker), tmp_path / "done"
    load = new_load(worker.url, tool=f"sleep 0.3; echo {{word}} | tee -a {done}")

    load.wait_for_more(6)
    for process in processes_of(worker):
        process.terminate()
        wait_for_replacement(worker, process)
        load.wait_for_more(6)
    report = load.finish()
    worker.stop()

    assert set(report.again) <= UNHEARD - {"ConnectError"}, "the address accepted connections all the time"
    logs = await hold_against(report, store_of(worker))
    hold_effects_against(report, done)
    assert report.unknown == [], "the current step was finished"
    recovered = [e.event for entries in logs.values() for e in entries if isinstance(e.event, Recovered)]
    assert {event.evidence for event in recovered} <= {LEFT}


@pytest.mark.crash
async def test_promise_22_a_request_for_a_session_that_another_process_runs_waits_for_its_turn(
    new_worker: NewWorker, stack: ExitStack, tmp_path: Path
) -> None:
    worker = start(new_worker)
    one, other = connect_to_each(worker, stack)
    started, finished = tmp_path / "started", tmp_path / "finished"
    command = f"touch {started}; while ! [ -e {finished} ]; do sleep 0.1; done; echo finished"
    session = one.ask("mine", "hello").headers["x-session-id"]
    first = asyncio.create_task(asyncio.to_thread(one.ask, "mine", use_terminal(command)))
    await asyncio.to_thread(wait_until, started.exists, "the tool")
    second = asyncio.create_task(asyncio.to_thread(other.ask, "mine", "and then?"))
    database = await open_url(store_of(worker))
    while not await database.read(input_queue.list_waiting, session):
        await asyncio.sleep(0.05)
    await database.close()
    finished.touch()
    answers = [await first, await second]

    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    assert "finished" in texts[0]
    assert "and then?" in texts[1]
    assert {answer.headers["x-session-id"] for answer in answers} == {session}


@pytest.mark.crash
def test_promise_22_a_conversation_can_alternate_between_the_processes(new_worker: NewWorker, stack: ExitStack) -> None:
    clients = connect_to_each(start(new_worker), stack)

    replies = [clients[number % 2].ask("mine", f"message-{number}").json() for number in range(6)]

    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert all(f"message-{number}" in text for number, text in enumerate(texts))


@pytest.mark.crash
def test_the_metrics_are_those_of_all_processes(new_worker: NewWorker, stack: ExitStack) -> None:
    one, other = connect_to_each(start(new_worker), stack)

    one.http.get("/metrics")  # publishes its own
    lines = other.http.get("/metrics").text.splitlines()

    counted = [line for line in lines if line.startswith("holdfast_http_requests_total{")]
    assert {line.split('process="')[1][0] for line in counted} == {"1", "2"}
    assert len([line for line in lines if line.startswith("# TYPE holdfast_http_requests_total")]) == 1
    assert 'holdfast_workers{state="alive"} 2' in lines


@pytest.mark.crash
def test_the_processes_end_with_the_supervising_one(new_worker: NewWorker) -> None:
    worker = start(new_worker)
    processes = processes_of(worker)
    os.kill(worker.process.pid, signal.SIGKILL)

    psutil.wait_procs(processes, timeout=60)

    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", worker.port))


@pytest.mark.crash
def test_a_second_signal_ends_all_of_them_at_once(new_worker: NewWorker, tmp_path: Path) -> None:
    worker, started = start(new_worker), tmp_path / "started"
    processes = processes_of(worker)
    body = {"model": "holdfast", "messages": [{"role": "user", "content": use_terminal(f"touch {started}; sleep 60")}]}

    def ask() -> None:
        with worker.http() as http, pytest.raises(httpx.HTTPError):
            http.post("/v1/chat/completions", json=body)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(started.exists, "the tool")
    os.kill(worker.process.pid, signal.SIGTERM)
    wait_until(lambda: any(_is_leaving(worker, one) for one in processes), "the drain to begin")
    os.kill(worker.process.pid, signal.SIGTERM)
    code = worker.process.wait(60)
    asking.join()

    assert code == 130, worker.process.stderr
    assert not any(process.is_running() for process in processes)


def _is_leaving(worker: Worker, process: psutil.Process) -> bool:
    return process.is_running() and not [one for one in process.net_connections("tcp") if one.status == "LISTEN"]


@pytest.mark.crash
def test_it_does_not_start_if_one_of_them_cannot(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_text("this is no store")
    command = ["-m", "holdfast", "--home", str(tmp_path), "serve", "--port", "0", "--processes", "3"]
    with Process(sys.executable, *command) as process:
        code = process.wait()

    assert code == 1, process.stderr
    assert "listening" not in process.stdout
    assert process.stderr.count("holdfast: ") == 1, process.stderr


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = ServerProcesses(1, lambda: None)
    first = processes._processes[0]
    monkeypatch.setattr(os, "fork", fail_to_fork)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert processes._fork(first) is None
    assert first.pid is None and first.due_at is not None, "it is tried again, and the other processes go on"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask


def fail_to_fork() -> int:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
