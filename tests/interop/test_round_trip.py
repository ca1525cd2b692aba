"""Export and import lose nothing: the export of an imported log is identical, byte for byte. (promises 5, 23)"""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from holdfast.interop.export import jsonl
from holdfast.interop.importing import own_export
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, SessionOpened
from holdfast.model.ids import SESSION, Ids
from holdfast.store import verify
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import aliases, log, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.fakes.clock import FakeClock
from tests.interop.importing.test_sync import MAKERS
from tests.interop.run_import import bring
from tests.model.strategies import events as any_events

EVENTS = st.lists(any_events(), max_size=12)


async def exported(database: Database, session_id: str) -> str:
    return "".join([piece async for piece in jsonl.export_lines(database, session_id)])


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=40)
@given(EVENTS)
def test_promise_23_export_import_export_is_the_same_file(events: list[Event]) -> None:
    async def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            one = await open_sqlite(Path(folder) / "one" / "holdfast.db")
            two = await open_sqlite(Path(folder) / "two" / "holdfast.db")
            try:
                try:
                    session_id = await one.write(add, events)
                except Invalid:  # a name that no store takes: there can be no such log
                    reject()
                if (await one.read(sessions.get, session_id)).summary.mode == "trusted":
                    reject()  # an import adds an event that lowers the mode
                first = await exported(one, session_id)
                file = Path(folder) / "x.jsonl"
                file.write_text(first)
                results = await bring(two, file)
                assert results[0].error is None
                assert await exported(two, session_id) == first
                assert (await verify.verify(two)).ok
            finally:
                await one.close()
                await two.close()

    asyncio.run(go())


def add(tx: Transaction, events: list[Event]) -> str:
    clock = FakeClock()
    session, _ = sessions.create(tx, Ids(clock.now).make(SESSION), SessionOpened(source="chat"), at=clock.now())
    if events:
        log.append_unheld(tx, session.id, events, at=clock.now())
    aliases.add(tx, "another-name", session.id, at=clock.now())
    return session.id


@pytest.mark.parametrize("name", MAKERS)
async def test_an_imported_session_survives_export_and_import_and_is_still_recognised(
    database: Database, tmp_path: Path, name: str
) -> None:
    source = MAKERS[name](tmp_path)
    taken = [result.taken.session for result in await bring(database, source) if result.taken and result.taken.session]
    other = await open_sqlite(tmp_path / "other" / "holdfast.db")
    for session in taken:
        file = tmp_path / f"{session.id}.jsonl"
        file.write_text(await exported(database, session.id))
        await bring(other, file)

        assert await exported(other, session.id) == file.read_text()

    again = [result.taken.outcome for result in await bring(other, source) if result.taken is not None]
    await other.close()
    assert set(again) <= {"same", "empty"}


async def test_a_file_is_not_loaded_into_memory(database: Database, tmp_path: Path) -> None:
    """It is read twice instead: once to verify it, once to store it."""
    session_id = await database.write(add, [])
    file = tmp_path / "x.jsonl"
    file.write_text(await exported(database, session_id))
    reads: list[int] = []

    class Watched(own_export.RepeatableLines):
        def __iter__(self):  # type: ignore[no-untyped-def]
            reads.append(1)
            return super().__iter__()

    other = await open_sqlite(tmp_path / "other" / "holdfast.db")
    await other.write(own_export.store, own_export.verify_export(Watched(file), "it"), at=1)

    await other.close()
    assert len(reads) == 2
