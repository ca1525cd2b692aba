"""Several machines on one store: watching, waiting, taking over and stopping."""

import asyncio
import json
import threading
from pathlib import Path

import httpx
import pytest

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, Recovered, ToolEnded, TurnEnded, TurnStarted
from holdfast.model.message import text_of
from tests.api.native_client import Listener, begin
from tests.crash.programs import wait_until
from tests.engine.well_formed import assert_well_formed
from tests.fleet.conftest import NewWorker
from tests.fleet.faulty_proxy import FaultyProxy
from tests.fleet.fleet import QUICK, Worker, logs_of
from tests.fleet.load import LoadReport
from tests.postgres.cluster import cluster, name_of

TALKS = {"steps": [{"say": " ".join(f"word{n}" for n in range(60)), "delay_seconds": 0.05}], "loop": True}


@pytest.fixture
def talker(tmp_path: Path) -> str:
    """A model that takes about three seconds for its reply."""
    script = tmp_path / "talks.json"
    script.write_text(json.dumps(TALKS))
    return f"scripted:{script}"


def ask(worker: Worker, name: str, words: str, key: str = "", **headers: str) -> httpx.Response:
    """Send a message and wait for the reply."""
    given = {"x-session-key": name, **({"idempotency-key": key} if key else {}), **headers}
    with worker.http(headers=given) as http:
        body = {"model": "holdfast", "messages": [{"role": "user", "content": words}]}
        return http.post("/v1/chat/completions", json=body)


def use_terminal(command: str) -> str:
    return f"use tool terminal {json.dumps({'command': command})}"


async def log_of(store: str, session_id: str) -> list[Entry]:
    return (await logs_of(store, LoadReport(sessions={"it": session_id})))["it"]


def proxy_to(store: str) -> tuple[FaultyProxy, str]:
    """A proxy to the store that can be interrupted, and its URL."""
    proxy = FaultyProxy(f"{cluster().folder}/.s.PGSQL.5432")
    return proxy, f"postgresql://{cluster().user}@127.0.0.1:{proxy.port}/{name_of(store)}"


def test_promise_22_a_watcher_on_one_machine_follows_a_turn_on_another(
    store: str, new_worker: NewWorker, talker: str
) -> None:
    one, other = (new_worker(f"host-{name}", store, model=talker) for name in "ab")
    with one.http() as http:
        listener = Listener(begin(http))
        http.post(f"/v1/sessions/{listener.session_id}/turns", json={"input": "go"}).raise_for_status()
    before_the_end = 0
    with other.http() as http:
        for kind in listener.listen(http):
            before_the_end += kind == "delta"
            if listener.is_over:
                break

    assert before_the_end > 3, "it was received while it was streamed, not at the end"
    assert listener.text == TALKS["steps"][0]["say"]  # type: ignore[index]
    assert [event["seq"] for event in listener.events] == list(range(1, listener.last + 1))


async def test_promise_11_a_message_on_another_machine_waits_for_the_holder_or_is_refused(
    store: str, new_worker: NewWorker, talker: str
) -> None:
    one, other = (new_worker(f"host-{name}", store, model=talker) for name in "ab")
    with one.http() as http:
        session_id = begin(http)
        http.post(f"/v1/sessions/{session_id}/turns", json={"input": "first"}).raise_for_status()
    impatient = await asyncio.to_thread(ask, other, "", "no", **{"x-session-id": session_id, "x-busy": "reject"})
    patient = await asyncio.to_thread(ask, other, "", "second", **{"x-session-id": session_id})

    assert (impatient.status_code, impatient.json()["error"]["code"]) == (409, "session_busy")
    assert patient.status_code == 200
    events = [entry.event for entry in await log_of(store, session_id)]
    assert_well_formed(events)
    assert len({event.worker_id for event in events if isinstance(event, TurnStarted)}) == 1, "the holder ran both"


@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_promise_22_a_client_of_a_killed_worker_gets_its_reply_from_another_within_the_stale_limit(
    store: str, new_worker: NewWorker, tmp_path: Path
) -> None:
    one, other = (new_worker(f"host-{name}", store, liveness=QUICK) for name in "ab")
    started = tmp_path / "started"
    command = f"echo once >> {started}; sleep 600"
    broken: list[Exception] = []

    def client() -> None:
        try:
            ask(one, "mine", use_terminal(command), key="k1")
        except httpx.HTTPError as e:
            broken.append(e)

    thread = threading.Thread(target=client)
    thread.start()
    wait_until(started.exists, "the tool")
    one.process.kill()
    thread.join()
    assert broken, "the connection broke"
    answer = await asyncio.to_thread(ask, other, "mine", use_terminal(command), key="k1")

    assert answer.status_code == 200, answer.text
    assert "terminal unknown" in answer.json()["choices"][0]["message"]["content"]
    assert started.read_text() == "once\n", "nothing acts twice by accident"
    events = [entry.event for entry in await log_of(store, answer.headers["x-session-id"])]
    assert_well_formed(events)
    [recovered] = [event for event in events if isinstance(event, Recovered)]
    assert "its heartbeat counter stayed at" in recovered.evidence


@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_promise_11_a_worker_that_is_cut_off_stops_acting_before_another_takes_over_and_writes_nothing_late(
    store: str, new_worker: NewWorker, tmp_path: Path
) -> None:
    proxy, through = proxy_to(store)
    one = new_worker("host-a", through, liveness=QUICK)
    ticks = tmp_path / "ticks"
    with one.http() as http:
        session_id = begin(http)
        tick = use_terminal(f"while :; do date +%s%6N >> {ticks}; sleep 0.1; done")
        http.post(f"/v1/sessions/{session_id}/turns", json={"input": tick}).raise_for_status()
    wait_until(ticks.exists, "the tool")
    other = new_worker("host-b", store, liveness=QUICK)
    proxy.hold_up()
    with other.http() as http:

        def over() -> bool:
            shown = http.get(f"/v1/sessions/{session_id}/events").json()["events"]
            return any(event["kind"] == "turn_ended" for event in shown)

        wait_until(over, "the end of the turn, on the other machine", 90)
    proxy.let_through()  # the data that the first had sent arrives now
    code = one.process.wait(90)

    assert code != 0
    assert "declared dead" in one.process.stderr
    entries = await log_of(store, session_id)
    events = [entry.event for entry in entries]
    assert_well_formed(events)
    [taken] = [entry for entry in entries if isinstance(entry.event, Recovered)]
    assert max(map(int, ticks.read_text().split())) < taken.at, "it had stopped before"
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["unknown"]
    assert isinstance(events[-1], TurnEnded) and events[-1].outcome == "done"
    proxy.close()


@pytest.mark.crash
@pytest.mark.timeout(120)
async def test_promise_10_a_worker_that_is_cut_off_for_a_moment_continues(
    store: str, new_worker: NewWorker, tmp_path: Path
) -> None:
    proxy, through = proxy_to(store)
    one = new_worker("host-a", through)
    new_worker("host-b", store)
    started, finished = tmp_path / "started", tmp_path / "finished"
    answers: list[httpx.Response] = []
    command = use_terminal(f"touch {started}; while ! [ -e {finished} ]; do sleep 0.1; done; echo finished")
    thread = threading.Thread(target=lambda: answers.append(ask(one, "mine", command)))
    thread.start()
    wait_until(started.exists, "the tool")
    proxy.hold_up()
    finished.touch()
    wait_until(lambda: proxy.held_up > 0, "what the worker wants to write")
    proxy.let_through()
    await asyncio.to_thread(thread.join)

    assert answers[0].status_code == 200, answers[0].text
    events = [entry.event for entry in await log_of(store, answers[0].headers["x-session-id"])]
    assert_well_formed(events)
    assert [text_of(e.parts) for e in events if isinstance(e, ModelSaid)][-1].startswith("done: terminal: finished")
    assert not any(isinstance(event, Recovered) for event in events)
    proxy.close()
