"""Several machines on one store: the sessions of a dead one are recovered by another within the stale limit."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import Conflict, LeaseLost
from holdfast.model.event import ModelSaid, Recovered, SessionOpened, ToolEnded, TurnEnded
from holdfast.model.message import text_of
from holdfast.model.times import MINUTE
from holdfast.providers.scripted import ScriptStep
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.repos import leases, log, sessions, workers
from tests.conftest import NewWorker
from tests.contract.logs import user
from tests.engine.stage import PACE, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.clock import FakeClock

ROOT = Path(__file__).parents[2]
AWAKE = (ScriptStep(say="Here."), ScriptStep(say="Awake again."))


@pytest.mark.crash
async def test_promise_22_a_turn_of_a_worker_killed_on_another_machine_is_finished_here_within_the_stale_limit(
    database: PostgresDatabase, url: str, tmp_path: Path, clock: FakeClock
) -> None:
    program = [sys.executable, "-m", "tests.postgres.host", url, str(tmp_path), "host-a"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        session_id, away = process.stdout.readline().split()
        process.kill()
    here = await set_up(tmp_path, *AWAKE, database=database, clock=clock)  # type: ignore[arg-type] # any store will do
    janitor = here.janitor()

    first = await janitor.sweep()
    clock.pass_seconds(PACE.stale_seconds)
    early = await janitor.sweep()
    assert [action for found in (first, early) for action in found.actions if action.what == "marked dead"] == []
    clock.pass_seconds(1)
    found = await janitor.sweep()
    await asyncio.wait_for(here.engine.settled(), 30)

    assert [action.worker_id for action in found.actions if action.what == "marked dead"] == [away]
    events = await here.log(session_id)
    assert_well_formed(events)
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["unknown"]
    assert any(isinstance(event, Recovered) for event in events)
    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "Awake again."
    assert isinstance(events[-1], TurnEnded) and events[-1].outcome == "done"
    await here.engine.close()


async def test_promise_11_a_late_writer_on_another_machine_writes_nothing(
    database: PostgresDatabase, url: str, new_worker: NewWorker, clock: FakeClock
) -> None:
    other = await open_postgres(url)
    late, successor = await new_worker(), await new_worker()
    await database.write(sessions.create, "hf-1", SessionOpened(source="api"), at=1)
    lost = await other.write(leases.take, "hf-1", late)
    await database.write(workers.mark_dead, late, "it was silent", at=2)
    held = await database.write(leases.take, "hf-1", successor)

    with pytest.raises(LeaseLost):
        await other.write(log.append, lost, [user("from the dead")], at=3)
    with pytest.raises(Conflict):
        await other.write(workers.record_heartbeat, late, at=3)
    await database.write(log.append, held, [user("alive")], at=3)

    session = await other.read(sessions.get, "hf-1")
    assert [entry.seq for entry in await other.read(log.read_complete, session)] == [1, 2]
    await other.close()


async def test_promise_9_no_worker_takes_a_session_for_one_that_is_being_declared_dead(
    database: PostgresDatabase, url: str, new_worker: NewWorker
) -> None:
    """Otherwise the dead worker would hold it forever: each checks before it acts, and neither sees the other's change."""
    other = await open_postgres(url)
    for number in range(30):
        name, dying = f"hf-{number}", await new_worker()
        await database.write(sessions.create, name, SessionOpened(source="api"), at=1)
        await asyncio.gather(
            other.write(leases.take, name, dying),
            database.write(workers.mark_dead, dying, "gone", at=2),
            return_exceptions=True,
        )
        assert (await database.read(sessions.get, name)).lease_worker is None
    await other.close()


async def test_two_machines_that_open_one_channel_get_one_session(database: PostgresDatabase, url: str) -> None:
    other = await open_postgres(url)
    for number in range(20):
        opened = SessionOpened(source="gateway", channel=f"matrix:{number}")
        made = await asyncio.gather(
            *(
                place.write(sessions.create_for_channel, f"hf-{number}-{who}", opened, at=MINUTE)
                for who, place in enumerate((database, other, database, other))
            )
        )
        assert len({session.id for session, _ in made}) == 1
        assert sum(new for _, new in made) == 1
    await other.close()
