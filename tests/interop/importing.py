"""Imports into a store and looks at what came of it."""

from pathlib import Path

from holdfast.interop.bring import Bringing, Given, Result
from holdfast.interop.tally import Adopted
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, UserSaid
from holdfast.model.ids import Ids
from holdfast.model.session import Session
from holdfast.store import log, sessions
from holdfast.store.database import Database, Transaction
from tests.engine.well_formed import assert_well_formed
from tests.fakes.clock import FakeClock


async def bring(database: Database, *paths: Path, rehearse: bool = False, as_new: bool = False) -> list[Result]:
    clock = FakeClock()
    bringing = Bringing(database, clock, Ids(clock.now), as_new=as_new, rehearse=rehearse)
    given = [Given(str(path), path) for path in paths]
    return [result async for result in bringing.go(given, lambda done, total: None)]


async def taken(database: Database, *paths: Path, rehearse: bool = False) -> list[Adopted]:
    """What became of each session; that anything failed is an error."""
    results = await bring(database, *paths, rehearse=rehearse)
    assert [str(result.error) for result in results if result.error is not None] == []
    return [result.taken for result in results if result.taken is not None]


async def entries(database: Database, ref: str) -> list[Entry]:
    """A session's log, proved whole and well-formed."""

    def work(tx: Transaction) -> list[Entry]:
        return log.read_whole(tx, sessions.resolve(tx, ref).session)

    found = await database.read(work)
    assert_well_formed([entry.event for entry in found])
    return found


async def events(database: Database, ref: str) -> list[Event]:
    return [entry.event for entry in await entries(database, ref)]


async def session(database: Database, ref: str) -> Session:
    return (await database.read(sessions.resolve, ref)).session


def texts(found: list[Event]) -> list[str]:
    """What was said, as `role: text`."""
    roles = {UserSaid: "user", ModelSaid: "model", ToolEnded: "tool"}
    return [
        f"{roles[type(event)]}: {''.join(getattr(part, 'text', '') for part in event.parts if part.__class__.__name__ == 'Text')}"
        for event in found
        if isinstance(event, UserSaid | ModelSaid | ToolEnded)
    ]
