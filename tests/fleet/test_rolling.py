"""Workers that are stopped one after the other under load: no client gets an error, and every turn goes on."""

from pathlib import Path

import pytest

from holdfast.engine.recover import LEFT
from holdfast.model.event import Recovered
from tests.crash.effort import ROUNDS as WANTED
from tests.fleet.conftest import NewCrowd, NewWorker
from tests.fleet.fleet import hold_against, hold_effects_against

ROUNDS = max(1, WANTED // 20)
UNHEARD = {"ConnectError", "ReadError", "WriteError", "RemoteProtocolError", "CloseError"}
"""A door that was closed in the client's face: the request was never taken in."""


@pytest.mark.crash
@pytest.mark.timeout(120 + 120 * ROUNDS)
async def test_promise_22_workers_are_restarted_one_after_the_other_and_no_client_gets_an_error(
    store: str, new_worker: NewWorker, new_crowd: NewCrowd, tmp_path: Path
) -> None:
    workers = [new_worker(f"host-{name}", store) for name in "abc"]
    done = tmp_path / "done"
    crowd = new_crowd(*(worker.url for worker in workers), tool=f"sleep 0.3; echo {{word}} | tee -a {done}")

    crowd.wait_for_more(10)
    for worker in workers * ROUNDS:
        worker.stop()
        worker.restart()
        crowd.wait_for_more(6)
    told = crowd.finish()

    print(f"sent again: {dict(told.again)}")
    assert set(told.again) <= UNHEARD, "whoever was let in was answered"
    logs = await hold_against(told, store)
    hold_effects_against(told, done)
    assert told.unknown == [], "the step in hand was finished"
    recovered = [e.event for entries in logs.values() for e in entries if isinstance(e.event, Recovered)]
    assert recovered, "turns were gone on with by others"
    assert {event.evidence for event in recovered} == {LEFT}
