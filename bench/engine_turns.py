"""The engine's own time for a turn, with a model that answers at once, and how it grows with the session."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench import stores, texts
from bench.figures import Figure, Goal, alternate, median, ratio
from holdfast.clock import SystemClock
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import Bus
from holdfast.engine.submission import NewMessage
from holdfast.engine.turn.loop import TurnSettings
from holdfast.engine.turn.model_call import ModelCallSettings
from holdfast.engine.turn.tool_call import ToolCallSettings
from holdfast.model.event import Event
from holdfast.model.ids import WORKER, Ids
from holdfast.model.message import Text
from holdfast.model.provider import Delta, ModelReply, ModelRequest, StreamRestarted, TextDelta
from holdfast.model.session import Session
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, workers
from holdfast.store.sqlite.driver import SqliteDatabase
from holdfast.tools.toolbox import Toolbox

TURNS = 100
AT_ONCE = 64
LONG = 10_000


async def _at_once(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
    """A model that takes no time."""
    yield TextDelta("Yes.")
    yield ModelReply(parts=(Text("Yes."),), model="instant", finish="stop")


async def engine_on(db: Database, folder: Path) -> Engine:
    """An engine whose model takes no time."""
    clock = SystemClock()
    ids = Ids(clock.now)
    services = EngineServices(db, clock, ids, Bus(), ids.make(WORKER), current_identity())
    await db.write(workers.register, services.worker_id, "bench", current_identity(), version="0", at=clock.now())

    def prepare(session: Session, opened: Event) -> TurnSettings:
        acting = ToolCallSettings(Toolbox([]), "deny", 0, 60, lambda: folder, folder)
        return TurnSettings(ModelCallSettings("instant", "Be brief.", _at_once, 60), acting, 10, 60)

    return Engine(services, Scheduler(services, prepare), "instant")


async def measure(folder: Path, *, rounds: int) -> list[Figure]:
    db = await stores.new_store(folder / "turns.db")
    engine = await engine_on(db, folder)
    short = (await engine.open(OpenRequest(source="api"))).session.id
    long = await _long_session(db)
    many = [(await engine.open(OpenRequest(source="api"))).session.id for _ in range(AT_ONCE)]
    for session_id in (short, long):
        await _play(engine, session_id, 1)  # what is read once is not part of a turn
    contest = {
        "two appends": lambda: _bare(db),
        "short": lambda: timed(engine, [short], TURNS),
        "long": lambda: timed(engine, [long], TURNS),
        "many": lambda: timed(engine, many, max(1, 4 * TURNS // AT_ONCE)),
    }
    results = await alternate(contest, rounds)
    first = await _first_turn(db, folder, long)
    await engine.close()
    await db.close()
    return [
        Figure(
            what="two durable appends, which a turn cannot do without", value=_millis(median(results, "two appends"))
        ),
        Figure(
            what="a turn, with a model that answers at once",
            value=_millis(median(results, "short")),
            beside="two appends",
            judged=ratio(results, "short", "two appends"),
        ),
        Figure(
            what=f"a turn behind {LONG:,} messages",
            value=_millis(median(results, "long")),
            beside="a turn in a short session",
            judged=ratio(results, "long", "short"),
            goal=Goal("≤", 1.5),
        ),
        Figure(
            what=f"a turn, {AT_ONCE} sessions at once",
            value=_millis(median(results, "many")),
            beside="one session at a time",
            judged=ratio(results, "many", "short"),
        ),
        Figure(what=f"the first turn after a start, behind {LONG:,} messages", value=_millis(first)),
    ]


async def _long_session(db: SqliteDatabase) -> str:
    lease = await db.write(stores.hold, LONG)
    await stores.fill(db, lease, [texts.said(number) for number in range(LONG)])
    await db.write(leases.release, lease)
    return lease.session_id


async def timed(engine: Engine, session_ids: list[str], turns: int) -> float:
    """Seconds for one turn."""
    start = time.perf_counter()
    await asyncio.gather(*(_play(engine, session_id, turns) for session_id in session_ids))
    return (time.perf_counter() - start) / (turns * len(session_ids))


async def _play(engine: Engine, session_id: str, turns: int) -> None:
    for _ in range(turns):
        turn = await engine.submit(NewMessage(session_id, "Are you there?"), stream="live")
        async for _item in turn.follow():
            pass


async def _bare(db: SqliteDatabase) -> float:
    """Two appends to a log: the words that come in, the reply that goes out."""
    lease = await db.write(stores.hold, 0)
    start = time.perf_counter()
    for number in range(TURNS):
        for _ in range(2):
            await db.write(log.append, lease, [texts.said(number)], at=stores.now())
    took = (time.perf_counter() - start) / TURNS
    await db.write(leases.release, lease)
    return took


async def _first_turn(db: SqliteDatabase, folder: Path, session_id: str) -> float:
    engine = await engine_on(db, folder)
    start = time.perf_counter()
    await _play(engine, session_id, 1)
    took = time.perf_counter() - start
    await engine.close()
    return took


def _millis(seconds: float) -> str:
    return f"{seconds * 1000:,.2f} ms"
