"""Faults of a server that workers on several machines share: every request is answered, nothing is lost or doubled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.conftest import NewLoad, NewWorker
from tests.fleet.faulty_proxy import Breaker, FaultyProxy
from tests.fleet.fleet import hold_against, hold_effects_against
from tests.postgres.cluster import Cluster, cluster, name_of
from tests.sampling import ROUNDS as WANTED

ROUNDS = max(1, WANTED // 20)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Cluster]:
    """A server that accepts fewer connections than the workers need."""
    made = Cluster(connections=14)
    made.start()
    yield made
    made.remove()


@pytest.mark.crash
@pytest.mark.timeout(120 + 60 * ROUNDS)
async def test_promise_1_a_server_that_is_restarted_and_killed_under_load_loses_and_doubles_nothing(
    durable: Cluster, new_worker: NewWorker, new_load: NewLoad, tmp_path: Path
) -> None:
    store = durable.new_database()
    workers = [new_worker(f"host-{name}", store) for name in "ab"]
    done = tmp_path / "done"
    load = new_load(*(worker.url for worker in workers), tool=f"echo {{word}} | tee -a {done}")

    load.wait_for_more(10)
    for _ in range(ROUNDS):
        durable.restart()
        load.wait_for_more(12)
        durable.kill()
        durable.start()
        load.wait_for_more(12)
    report = load.finish()

    assert report.again == {}, "a request waits for the server, and its client notices nothing"
    await hold_against(report, store)
    hold_effects_against(report, done)
    assert report.unknown == []


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_a_server_without_free_connections_answers_nevertheless(
    narrow: Cluster, new_worker: NewWorker, new_load: NewLoad
) -> None:
    store = narrow.new_database()
    workers = [new_worker(f"host-{name}", store) for name in "ab"]
    load = new_load(*(worker.url for worker in workers), talkers=16)

    load.wait_for_more(100)
    report = load.finish()

    assert report.again == {}
    for worker in workers:
        worker.stop()
    await hold_against(report, store)


@pytest.mark.crash
@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("where", ["in commits", pytest.param("anywhere", marks=pytest.mark.soak)])
async def test_promise_1_connections_that_break_at_any_byte_lose_and_double_nothing(
    store: str, new_worker: NewWorker, new_load: NewLoad, tmp_path: Path, where: str
) -> None:
    commits = where == "in commits"
    breaker = Breaker(7, (4, 12) if commits else (20, 80), only_commits=commits)
    proxy = FaultyProxy(f"{cluster().folder}/.s.PGSQL.5432")
    through = f"postgresql://{cluster().user}@127.0.0.1:{proxy.port}/{name_of(store)}"
    workers = [new_worker(f"host-{name}", through) for name in "ab"]
    done = tmp_path / "done"
    proxy.on_data = breaker
    load = new_load(*(worker.url for worker in workers), tool=f"echo {{word}} | tee -a {done}")

    while breaker.breaks < 30 * ROUNDS or not (breaker.lost and breaker.torn and breaker.arrived):
        load.wait_for_more(5)
    proxy.on_data = lambda _: None
    report = load.finish()
    print(f"broken before: {breaker.lost}, in the midst: {breaker.torn}, after: {breaker.arrived}")
    for worker in workers:
        worker.stop()
    proxy.close()

    assert report.again == {}
    await hold_against(report, store)
    hold_effects_against(report, done)
    assert report.unknown == []
