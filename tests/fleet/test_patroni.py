"""Two worker machines and a pair of PostgreSQL servers under Patroni: killed, cut off and failed over under load."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.crash.programs import wait_until
from tests.fleet import lan
from tests.fleet.conftest import NewLoad, NewWorker
from tests.fleet.fleet import Worker, hold_against, hold_effects_against
from tests.fleet.lan import Lan
from tests.fleet.patroni import Pair
from tests.sampling import ROUNDS as WANTED

ROUNDS = max(1, WANTED // 50)
LIVENESS = {"heartbeat_seconds": 2, "stale_seconds": 20, "sweep_seconds": 2}
"""Longer than a failover takes, during which no worker has to stop."""


@pytest.fixture(params=["as well as can be had", *(["without namespaces"] if WANTED else [])])
def machines(request: pytest.FixtureRequest) -> Iterator[Lan]:
    made = lan.build(namespaces=request.param != "without namespaces")
    yield made
    made.close()


@pytest.fixture
def pair(machines: Lan, stack: ExitStack) -> Pair:
    made = Pair(machines)
    stack.callback(made.close)
    made.start()
    return made


def has_ended(pair: Pair, name: str) -> bool:
    """Whether the newest worker of a machine was declared dead."""
    sql = f"SELECT ended_at IS NOT NULL FROM worker WHERE host = '{name}' ORDER BY id DESC LIMIT 1"
    with psycopg.connect(pair.leader.url.replace("/postgres?", "/holdfast?"), autocommit=True) as link:
        row = link.execute(sql.encode()).fetchone()
    return row == (True,)


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(300 + 300 * ROUNDS)
async def test_promise_22_nothing_is_lost_or_doubled_when_servers_die_and_connections_break_under_load(
    machines: Lan, pair: Pair, new_worker: NewWorker, new_load: NewLoad, tmp_path: Path
) -> None:
    print(f"machines: {machines.how}")
    with psycopg.connect(pair.leader.url, autocommit=True) as link:
        link.execute("CREATE DATABASE holdfast")
    workers = [start_worker(machines, pair, new_worker, name) for name in ("w1", "w2")]
    machines.add("clients", "outer")
    done = tmp_path / "done"
    load = new_load(
        *(worker.url for worker in workers),
        where=machines.where("clients"),
        tool=f"echo {{word}} | tee -a {done}",
        read_seconds=20.0,
        talkers=4,
    )
    load.wait_for_more(8)

    for number in range(ROUNDS):
        if number:
            pair.wait_for_both()
        killed = pair.leader
        killed.kill()
        pair.wait_for_leader(pair.other(killed))
        load.wait_for_more(8)
        killed.start()
        isolate(machines, pair, workers[0])
        load.wait_for_more(8)
        pair.wait_for_both()
        cut = pair.leader
        machines.cut(cut.name)
        pair.wait_for_leader(pair.other(cut))
        assert not cut.leads, "there are never two"
        load.wait_for_more(8)
        machines.mend(cut.name)
    report = load.finish()

    print(
        f"{sum(map(len, report.said.values()))} answers; sent again: {report.again}; outcome unknown: {len(report.unknown)}"
    )
    store = pair.leader.url.replace("/postgres?", "/holdfast?")
    await hold_against(report, store)
    hold_effects_against(report, done)


def start_worker(machines: Lan, pair: Pair, new_worker: NewWorker, name: str) -> Worker:
    machines.add(name, "inner", "outer")
    host, port = machines.bind(name, "outer", 8420)
    store = pair.store(name, "holdfast")
    return new_worker(name, store, where=machines.where(name), host=host, port=port, liveness=LIVENESS)


def isolate(machines: Lan, pair: Pair, worker: Worker) -> None:
    """Disconnect a worker from the databases until another has declared it dead; then it stops and is restarted."""
    machines.cut(worker.name)
    wait_until(lambda: has_ended(pair, worker.name), "somebody to bury it", 120, every=0.5)
    machines.mend(worker.name)
    code = worker.process.wait(90)
    assert code != 0
    assert "declared dead" in worker.process.stderr
    worker.restart()
