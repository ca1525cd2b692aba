"""Workers and brokers start, stop and are killed; users notice only a short delay."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.broker import admin, launch, worker
from holdfast.broker.broker import MAX_PARALLEL_STARTS
from holdfast.model.errors import Unavailable
from holdfast.process_lookup import current_identity
from tests.api.serving import BRISKLY, ask, session, text
from tests.broker.brokers import Brokers
from tests.crash.programs import ROOT, wait_until

SAME = {"x-session-key": "same"}
SOON = 0.02
"""Minutes."""


def messages(broker: Brokers, name: str, found: str) -> list[str]:
    with broker.http(name) as http:
        return [one["content"] for one in http.get(f"/v1/sessions/{found}/messages").json()["messages"]]


def test_a_worker_runs_when_it_is_needed_and_stops_when_not(new_broker: Any) -> None:
    broker = new_broker("ada", "bo", idle_minutes=SOON)
    assert broker.state("ada") is None
    with broker.http("ada") as http:
        found = session(ask(http, "one", headers=SAME))
        broker.wait_asleep("ada")
        assert session(ask(http, "two", headers=SAME)) == found

    assert messages(broker, "ada", found) == ["one", "You said: one", "two", "You said: two"]
    assert broker.state("bo") is None, "no request started it"


def test_a_worker_is_not_stopped_during_a_turn(new_broker: Any) -> None:
    broker = new_broker("ada", idle_minutes=0.001)
    with broker.http("ada") as http:
        found = http.post("/v1/sessions", json={"model": broker.model("brisk")}).json()["id"]
        assert http.post(f"/v1/sessions/{found}/turns", json={"input": "go"}).status_code == 202
    broker.wait_asleep("ada")

    with broker.http("ada") as http:
        events = http.get(f"/v1/sessions/{found}/events").json()["events"]
    kinds = [event["kind"] for event in events]
    assert kinds.count("turn_ended") == 1
    assert "recovered" not in kinds
    assert messages(broker, "ada", found) == ["go", BRISKLY]


def test_a_restarted_broker_finds_its_workers_again(new_broker: Any) -> None:
    broker = new_broker("ada")
    with broker.http("ada") as http:
        found = session(ask(http, "one", headers=SAME))
    pid = broker.pid("ada")

    broker.kill()
    assert broker.status()["broker"] is None
    assert broker.pid("ada") == pid
    broker.restart()
    with broker.http("ada") as http:
        assert session(ask(http, "two", headers=SAME)) == found

    assert broker.pid("ada") == pid
    wait_until(lambda: [one["pid"] for one in broker.status()["users"]] == [pid], "the status says so")


def test_a_worker_that_died_with_the_broker_is_restarted_automatically(new_broker: Any) -> None:
    broker = new_broker("ada")
    with broker.http("ada") as http:
        found = http.post("/v1/sessions", json={"model": broker.model("slow")}).json()["id"]
        assert http.post(f"/v1/sessions/{found}/turns", json={"input": "go"}).status_code == 202
    broker.kill()
    assert broker.strike("ada")
    broker.wait_asleep("ada")

    broker.restart()
    wait_until(lambda: broker.state("ada") is not None, "its worker is started")


def test_a_broker_that_stops_leaves_no_process(new_broker: Any) -> None:
    broker = new_broker("ada", "bo")
    for name in ("ada", "bo"):
        with broker.http(name) as http:
            ask(http, "hello")

    assert broker.stop() == 0
    assert broker.state("ada") is broker.state("bo") is None
    assert broker.status()["broker"] is None


def test_a_home_has_one_broker(new_broker: Any) -> None:
    broker = new_broker("ada")
    command = (sys.executable, "-m", "holdfast", "--home", str(broker.home), "broker", "--port", "0")
    second = subprocess.run(command, check=False, capture_output=True, cwd=ROOT, text=True)

    assert second.returncode == 4
    assert "another broker is using" in second.stderr


def test_a_user_who_is_removed_is_gone_at_once_and_the_home_is_kept(new_broker: Any) -> None:
    broker = new_broker("ada", "bo")
    with broker.http("ada") as http:
        ask(http, "hello")
        command = (sys.executable, "-m", "holdfast", "--home", str(broker.home), "broker", "remove", "ada")
        said = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, text=True).stdout

        assert http.get("/v1/sessions").status_code == 401
    broker.wait_asleep("ada")
    kept = Path(said.strip().rpartition(" ")[2])
    assert (kept / "home" / "holdfast.db").exists()
    assert not broker.places.user("ada").exists()
    wait_until(lambda: not broker.places.run("ada").exists(), "the broker has put its things away")
    assert "stopped the worker of ada: the user was removed" in (broker.home / "logs" / "holdfast.log").read_text()

    broker.add("ada")
    with broker.http("ada") as http:
        assert http.get("/v1/sessions").json()["sessions"] == []


def test_a_new_key_ends_the_old_one_and_every_login(new_broker: Any) -> None:
    broker = new_broker("ada")
    with broker.http("ada") as http, broker.http() as browser:
        found = session(ask(http, "one", headers=SAME))
        browser.post("/ui/login", data={"key": broker.keys["ada"]})
        assert browser.get("/", follow_redirects=False).status_code == 200

        broker.keys["ada"] = admin.new_key(broker.settings, "ada")

        assert http.get("/v1/sessions").status_code == 401
        assert browser.get("/", follow_redirects=False).headers["location"] == "/ui/login"
    with broker.http("ada") as http:
        wait_until(lambda: http.get(f"/v1/sessions/{found}").status_code == 200, "the worker has its new key")


def test_a_worker_that_cannot_start_is_reported_and_affects_no_other(new_broker: Any) -> None:
    broker = new_broker("ada", "bo")
    (broker.places.user("ada") / "home" / "config.toml").write_text("nonsense = 1\n")
    with broker.http("ada") as ada, broker.http("bo") as bo:
        refused = ada.get("/v1/sessions")
        assert text(ask(bo, "hello")) == "You said: hello"

    assert refused.status_code == 503
    assert "nonsense" in refused.json()["error"]["message"]
    wait_until(lambda: "nonsense" in broker.status()["users"][0]["complaint"], "the status says why")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_whatever_happens_to_a_worker_the_next_request_is_answered(new_broker: Any, number: int) -> None:
    broker = new_broker("ada", stop_seconds=1)
    with broker.http("ada") as http:
        found = session(ask(http, "one", headers=SAME))
        pid = broker.pid("ada")
        broker.strike("ada", number)
        if number == signal.SIGSTOP:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)
        assert session(ask(http, "two", headers=SAME)) == found

    assert messages(broker, "ada", found) == ["one", "You said: one", "two", "You said: two"]


def test_a_worker_with_a_schedule_reports_when_it_is_next_needed(new_broker: Any) -> None:
    broker = new_broker("ada", idle_minutes=SOON)
    home = broker.places.user("ada") / "home"
    command = (sys.executable, "-m", "holdfast", "--home", str(home), "cron", "add", "0 0 1 1 *", "happy new year")
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    with broker.http("ada") as http:
        told = http.get("/v1/idle").json()
    assert told["idle"] is True
    assert told["why"] == []
    assert told["wake_at"].partition("-")[2].startswith(("01-01", "12-31"))

    broker.wait_asleep("ada")
    wait_until(lambda: broker.status()["users"][0]["wake_at"] == told["wake_at"], "the status says when")


# what can be set


def test_a_worker_gets_the_configured_variables(new_broker: Any) -> None:
    python = ("/usr/bin/env", "GIVEN=yes", "KEPT=no", "OPENAI_BASE_URL=http://127.0.0.1:9/v1", sys.executable)
    broker = new_broker("ada", python=python, environment=["GIVEN"], memory_mb=1500)
    with broker.http("ada") as http:
        ask(http, "hello")
    environment = Path(f"/proc/{broker.pid('ada')}/environ").read_bytes().decode().split("\0")

    assert "GIVEN=yes" in environment
    assert "OPENAI_BASE_URL=" in environment, "it was passed, and erased once it was read"
    assert "KEPT=no" not in environment
    assert f" {1500 * 2**20} " in Path(f"/proc/{broker.pid('ada')}/limits").read_text()


def test_a_tool_cannot_exceed_the_memory_limit(new_broker: Any, tmp_path: Path) -> None:
    broker = new_broker("ada", memory_mb=700)
    hog = tmp_path / "hog.py"
    hog.write_text("bytearray(2**30)\n")
    call = {"name": "terminal", "arguments": {"command": f"python3 {hog}"}}
    script = broker.places.user("ada") / "home" / "hog.json"
    script.write_text(json.dumps({"steps": [{"call": [call]}, {"say": "Well."}]}))
    (script.parent / "config.toml").write_text(
        f'model = "scripted:{script}"\n[terminal]\nbackend = "local"\n'  # the script is outside the working directory
    )
    with broker.http("ada") as http:
        found = session(ask(http, "go"))

    said = messages(broker, "ada", found)
    assert "MemoryError" in said[2]
    assert said[3] == "Well."


def test_the_transfer_rate_of_a_user_is_limited(new_broker: Any) -> None:
    broker = new_broker("ada", kb_per_second=50)
    with broker.http("ada") as http:
        ask(http, "hello")
        began = time.monotonic()
        assert text(ask(http, "x" * 100 * 1024)).endswith("xxx")

    assert time.monotonic() - began > 2, "200 KB at 50 a second, of which the first second's are free"


def test_a_worker_that_takes_too_long_to_start_times_out(new_broker: Any) -> None:
    broker = new_broker("ada", start_seconds=0.05)
    with broker.http("ada") as http:
        answer = http.get("/v1/sessions")

    assert answer.status_code == 503
    assert "did not respond within" in answer.json()["error"]["message"]
    assert broker.state("ada") is None


def ask_in_vain(broker: Brokers, name: str) -> None:
    with broker.http(name) as http, contextlib.suppress(httpx.HTTPError):
        http.get("/v1/sessions")


def test_workers_that_hang_during_start_block_no_other(new_broker: Any) -> None:
    hanging = [f"hang{number}" for number in range(MAX_PARALLEL_STARTS + 1)]
    broker = new_broker("ada", *hanging, start_seconds=600)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent, contextlib.ExitStack() as stack:
        store = f'store = "postgresql://x@127.0.0.1:{silent.getsockname()[1]}/x"\n'
        for name in hanging:
            (broker.places.user(name) / "home" / "config.toml").write_text(store)
            waiting = threading.Thread(target=ask_in_vain, args=(broker, name))
            waiting.start()
            stack.callback(waiting.join)
        stack.callback(broker.kill)
        wait_until(lambda: sum(broker.state(name) is not None for name in hanging) >= MAX_PARALLEL_STARTS, "they hang")
        with broker.http("ada") as http:
            assert text(ask(http, "hello")) == "You said: hello"


async def test_the_log_of_a_worker_may_be_longer_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nos.ftruncate(1, 2**40)\nsys.exit('alas')\n")
    monkeypatch.setattr(launch, "__file__", str(program))
    order = worker.WorkerSpec(tmp_path, tmp_path, tmp_path, uid=None, key="k", env={}, memory_mb=1, processes=1)
    with pytest.raises(Unavailable, match=r"cannot start the worker: .*alas$"):
        await worker.start_worker(order, current_identity(), at=1, seconds=30)


def test_a_worker_that_does_not_end_is_killed(new_broker: Any) -> None:
    broker = new_broker("ada", idle_minutes=SOON, stop_seconds=0.001)
    with broker.http("ada") as http:
        found = session(ask(http, "one", headers=SAME))
    broker.wait_asleep("ada")

    assert messages(broker, "ada", found) == ["one", "You said: one"]


def test_invalid_arguments_get_a_plain_error(new_broker: Any) -> None:
    broker = new_broker("ada")
    for words, status, said in [
        (["add", "ada"], 1, "user ada already exists"),
        (["add", "../etc"], 2, "is not a valid user name"),
        (["add", "bo", "--config", "/nowhere"], 3, "file /nowhere not found"),
        (["remove", "nobody"], 3, "user 'nobody' not found"),
        (["key", "nobody"], 3, "user 'nobody' not found"),
        (["dance"], 2, "No such command 'dance'"),
    ]:
        command = (sys.executable, "-m", "holdfast", "--home", str(broker.home), "broker", *words)
        done = subprocess.run(command, check=False, capture_output=True, cwd=ROOT, text=True)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert said in done.stderr
