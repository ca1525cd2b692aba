"""Bad days of a server that workers on several machines share: every request is answered, nothing is lost or doubled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.effort import ROUNDS as WANTED
from tests.fleet.conftest import NewCrowd, NewWorker
from tests.fleet.fleet import hold_against, hold_effects_against
from tests.fleet.wire import Breaker, Wire
from tests.postgres.cluster import Cluster, cluster, name_of

ROUNDS = max(1, WANTED // 20)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Cluster]:
    """A server that takes fewer connections than the workers would like."""
    made = Cluster(connections=14)
    made.start()
    yield made
    made.remove()


@pytest.mark.crash
@pytest.mark.timeout(120 + 60 * ROUNDS)
async def test_promise_1_a_server_that_is_restarted_and_killed_under_load_loses_and_doubles_nothing(
    durable: Cluster, new_worker: NewWorker, new_crowd: NewCrowd, tmp_path: Path
) -> None:
    store = durable.new_database()
    workers = [new_worker(f"host-{name}", store) for name in "ab"]
    done = tmp_path / "done"
    crowd = new_crowd(*(worker.url for worker in workers), tool=f"echo {{word}} | tee -a {done}")

    crowd.wait_for_more(10)
    for _ in range(ROUNDS):
        durable.restart()
        crowd.wait_for_more(12)
        durable.kill()
        durable.start()
        crowd.wait_for_more(12)
    told = crowd.finish()

    assert told.again == {}, "a request waits for the server, and its client notices nothing"
    await hold_against(told, store)
    hold_effects_against(told, done)
    assert told.unknown == []


@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_a_server_without_connections_left_answers_all_the_same(
    narrow: Cluster, new_worker: NewWorker, new_crowd: NewCrowd
) -> None:
    store = narrow.new_database()
    workers = [new_worker(f"host-{name}", store) for name in "ab"]
    crowd = new_crowd(*(worker.url for worker in workers), talkers=16)

    crowd.wait_for_more(100)
    told = crowd.finish()

    assert told.again == {}
    for worker in workers:
        worker.stop()
    await hold_against(told, store)


@pytest.mark.crash
@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("where", ["in commits", "anywhere"])
async def test_promise_1_lines_that_break_at_any_byte_lose_and_double_nothing(
    store: str, new_worker: NewWorker, new_crowd: NewCrowd, tmp_path: Path, where: str
) -> None:
    commits = where == "in commits"
    breaker = Breaker(7, (4, 12) if commits else (20, 80), only_commits=commits)
    wire = Wire(f"{cluster().folder}/.s.PGSQL.5432")
    through = f"postgresql://{cluster().user}@127.0.0.1:{wire.port}/{name_of(store)}"
    workers = [new_worker(f"host-{name}", through) for name in "ab"]
    done = tmp_path / "done"
    wire.judge = breaker
    crowd = new_crowd(*(worker.url for worker in workers), tool=f"echo {{word}} | tee -a {done}")

    while breaker.breaks < 30 * ROUNDS or not (breaker.lost and breaker.torn and breaker.arrived):
        crowd.wait_for_more(5)
    wire.judge = lambda _: None
    told = crowd.finish()
    print(f"broken before: {breaker.lost}, in the midst: {breaker.torn}, after: {breaker.arrived}")
    for worker in workers:
        worker.stop()
    wire.close()

    assert told.again == {}
    await hold_against(told, store)
    hold_effects_against(told, done)
    assert told.unknown == []
