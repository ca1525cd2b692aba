"""Imports files into a store and checks the result."""

from pathlib import Path

from holdfast.interop.importing.report import ImportOutcome
from holdfast.interop.importing.runner import ImportInput, ImportResult, ImportRun
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, UserSaid
from holdfast.model.ids import Ids
from holdfast.model.session import Session
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log, sessions
from tests.engine.well_formed import assert_well_formed
from tests.fakes.clock import FakeClock


async def bring(database: Database, *paths: Path, dry_run: bool = False, as_new: bool = False) -> list[ImportResult]:
    clock = FakeClock()
    bringing = ImportRun(database, clock, Ids(clock.now), as_new=as_new, dry_run=dry_run)
    given = [ImportInput(str(path), path) for path in paths]
    return [result async for result in bringing.run(given, lambda done, total: None)]


async def taken(database: Database, *paths: Path, dry_run: bool = False) -> list[ImportOutcome]:
    """The result of each session. A failure raises."""
    results = await bring(database, *paths, dry_run=dry_run)
    assert [str(result.error) for result in results if result.error is not None] == []
    return [result.taken for result in results if result.taken is not None]


async def entries(database: Database, ref: str) -> list[Entry]:
    """A session's log, verified to be complete and well-formed."""

    def work(tx: Transaction) -> list[Entry]:
        return log.read_complete(tx, sessions.resolve(tx, ref).session)

    found = await database.read(work)
    assert_well_formed([entry.event for entry in found])
    return found


async def events(database: Database, ref: str) -> list[Event]:
    return [entry.event for entry in await entries(database, ref)]


async def session(database: Database, ref: str) -> Session:
    return (await database.read(sessions.resolve, ref)).session


def texts(found: list[Event]) -> list[str]:
    """The messages as `role: text`."""
    roles = {UserSaid: "user", ModelSaid: "model", ToolEnded: "tool"}
    return [
        f"{roles[type(event)]}: {''.join(getattr(part, 'text', '') for part in event.parts if part.__class__.__name__ == 'Text')}"
        for event in found
        if isinstance(event, UserSaid | ModelSaid | ToolEnded)
    ]
