"""The position of the telemetry export: one worker at a time, and the next one continues from there."""

from collections.abc import Iterator

import pytest

from holdfast.model.event import TurnEnded, TurnStarted
from holdfast.settings import TelemetrySettings
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, workers
from holdfast.telemetry.export import TelemetryExport
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession
from tests.contract.logs import user
from tests.fakes.clock import FakeClock
from tests.telemetry.collector_server import CollectorServer


@pytest.fixture
def collector() -> Iterator[CollectorServer]:
    with CollectorServer() as running:
        yield running


async def play(database: Database, worker: str, session_id: str, turn_id: str) -> None:
    lease = await database.write(leases.take, session_id, worker)
    events = [TurnStarted(turn_id=turn_id), user("hello", turn_id), TurnEnded(turn_id=turn_id, outcome="done")]
    await database.write(log.append, lease, events, at=2)
    await database.write(leases.release, lease)


async def test_one_worker_exports_and_another_continues_when_it_is_dead(
    database: Database, clock: FakeClock, new_worker: NewWorker, new_session: NewSession, collector: CollectorServer
) -> None:
    first, second = await new_worker(), await new_worker()
    session = await new_session(source="api", model="openai:gpt-5")
    settings = TelemetrySettings(endpoint=collector.url)
    ours, theirs = (TelemetryExport(database, clock, one, settings, "scripted:echo") for one in (first, second))

    assert not await ours.export_next(), "an export begins with what comes next"
    await play(database, first, session.id, "t-1")
    assert not await theirs.export_next(), "another worker exports"
    assert await ours.export_next()
    assert not await ours.export_next(), "everything was exported"
    await play(database, first, session.id, "t-2")
    await database.write(workers.mark_dead, first, "gone", at=3)
    assert await theirs.export_next()
    assert not await ours.export_next()

    assert len(collector.spans()) == 2
    assert len({span.trace_id for span in collector.spans()}) == 2
    assert len(collector.logs()) == 6
    await ours.close()
    await theirs.close()


async def test_a_dead_worker_cannot_move_the_position(
    database: Database, clock: FakeClock, new_worker: NewWorker, new_session: NewSession, collector: CollectorServer
) -> None:
    first, second = await new_worker(), await new_worker()
    session = await new_session(source="api")
    settings = TelemetrySettings(endpoint=collector.url)
    ours, theirs = (TelemetryExport(database, clock, one, settings, "scripted:echo") for one in (first, second))
    await ours.export_next()
    await play(database, first, session.id, "t-1")

    send = ours._send

    async def die_before_the_position_is_stored(*args: object) -> None:
        await send(*args)  # type: ignore[arg-type]
        await database.write(workers.mark_dead, first, "gone", at=3)
        assert await theirs.export_next()

    ours._send = die_before_the_position_is_stored  # type: ignore[method-assign, assignment]

    assert not await ours.export_next()
    assert len({span.span_id for span in collector.spans()}) == 1, "what is sent twice has the same ids"
    await ours.close()
    await theirs.close()
