"""A second import adds nothing, a source that has grown adds what is new, and a session continued here is not changed. (promise 23)"""

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.interop.importing import sync
from holdfast.interop.importing.facts import Fact, ForeignSession, ImportedInput, ImportedReply, ParentSession
from holdfast.model.event import Imported, Titled, TurnStarted, UserSaid
from holdfast.model.ids import TURN, Ids
from holdfast.model.message import Text, ToolCall
from holdfast.store import verify
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import aliases, leases, log, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.conftest import NewWorker
from tests.fakes.clock import FakeClock
from tests.fakes.crashing import Crash, CrashingDatabase
from tests.interop import sample_files
from tests.interop.importing.test_log_builder import FACTS
from tests.interop.run_import import bring, entries, events, session, taken, texts

MAKERS = {
    "hermes": lambda folder: sample_files.hermes_plain(folder / "state.db").path,
    "hermes chain": lambda folder: sample_files.hermes_rotated(folder / "state.db").path,
    "hermes in place": lambda folder: sample_files.hermes_in_place(folder / "state.db").path,
    "codex": lambda folder: sample_files.codex(folder / "rollout-1.jsonl"),
    "codex, old": lambda folder: sample_files.codex_old(folder / "rollout-2.jsonl"),
    "claude code": lambda folder: sample_files.claude(folder / "11111111-2222-4333-8444-555555555555.jsonl"),
    "chatgpt": lambda folder: sample_files.chatgpt(folder / "conversations.json"),
}


@pytest.mark.parametrize("name", MAKERS)
async def test_a_second_import_adds_nothing(database: Database, tmp_path: Path, name: str) -> None:
    file = MAKERS[name](tmp_path)
    first = await taken(database, file)
    heads = {one.session.id: one.session.hash for one in first if one.session is not None}
    assert any(one.outcome == "new" for one in first)

    again = await taken(database, file)

    assert {one.outcome for one in again} <= {"same", "empty"}
    assert {one.session.id: one.session.hash for one in again if one.session is not None} == heads
    assert (await verify.verify(database)).ok


@pytest.mark.parametrize("name", MAKERS)
async def test_every_session_is_well_formed_and_names_its_source(database: Database, tmp_path: Path, name: str) -> None:
    for one in await taken(database, MAKERS[name](tmp_path)):
        if one.session is not None:
            found = await events(database, one.session.id)
            imported = found[-1]
            assert isinstance(imported, Imported)
            assert (imported.format, imported.origin) == (one.format, one.origin)
            assert one.session.summary.source == "import"
            assert one.source == one.taken + one.copied + one.skipped


@pytest.mark.parametrize("name", MAKERS)
async def test_a_dry_run_reports_the_same_and_changes_nothing(database: Database, tmp_path: Path, name: str) -> None:
    file = MAKERS[name](tmp_path)

    would = await taken(database, file, dry_run=True)

    assert await database.read(verify.count) == (0, 0)
    does = await taken(database, file)
    assert [(one.origin, one.outcome, one.added, one.taken) for one in would] == [
        (one.origin, one.outcome, one.added, one.taken) for one in does
    ]


async def test_two_stores_get_the_same_sessions_with_the_same_hashes(database: Database, tmp_path: Path) -> None:
    file = sample_files.hermes_rotated(tmp_path / "state.db").path
    other = await open_sqlite(tmp_path / "other" / "holdfast.db")

    one, two = await taken(database, file), await taken(other, file)

    await other.close()
    assert [msgspec.to_builtins(item.session.summary) for item in one if item.session] == [
        msgspec.to_builtins(item.session.summary) for item in two if item.session
    ]
    assert [(item.session.id, item.session.hash) for item in one if item.session] == [
        (item.session.id, item.session.hash) for item in two if item.session
    ]


@pytest.mark.parametrize("cut", range(2, 15))
async def test_a_source_that_grew_is_imported_from_where_it_ended(database: Database, tmp_path: Path, cut: int) -> None:
    lines = [
        *sample_files.codex_lines(),
        sample_files.codex_said(30, "user", "go on"),
        sample_files.codex_said(31, "assistant", "gone on"),
    ]
    file = sample_files.write_lines(tmp_path / "r.jsonl", lines[:cut])
    first = (await taken(database, file))[0]
    sample_files.write_lines(file, lines)

    again = (await taken(database, file))[0]

    assert again.outcome == "extended" and again.session is not None and first.session is not None
    assert again.session.id == first.session.id
    assert again.session.seq == first.session.seq + again.added
    found = await events(database, sample_files.CODEX_ID)
    said = [one for one in texts(found) if "unknown" not in one]
    assert said[-2:] == ["user: go on", "model: gone on"]
    assert len([one for one in said if "How many files" in one]) == 1
    calls = [part.id for event in found for part in getattr(event, "parts", ()) if isinstance(part, ToolCall)]
    assert calls == ["call_a", "call_b", "call_c"]
    summary = (await session(database, sample_files.CODEX_ID)).summary
    assert (summary.tokens_in, summary.tokens_out) == (100, 9)
    assert (await taken(database, file))[0].outcome == "same"


async def test_a_result_that_arrived_after_the_import_is_not_lost(database: Database, tmp_path: Path) -> None:
    lines = sample_files.codex_lines()
    output = {"type": "custom_tool_call_output", "call_id": "call_c", "output": "patched"}
    file = sample_files.write_lines(tmp_path / "r.jsonl", lines)
    await taken(database, file)
    sample_files.write_lines(file, [*lines, sample_files.codex_line(40, "response_item", output)])

    await taken(database, file)

    assert any("patched" in one for one in texts(await events(database, sample_files.CODEX_ID)))


async def test_a_session_that_was_continued_here_is_left_alone(
    database: Database, tmp_path: Path, ids: Ids, clock: FakeClock
) -> None:
    lines = sample_files.codex_lines()
    file = sample_files.write_lines(tmp_path / "r.jsonl", lines)
    found = (await taken(database, file))[0].session
    assert found is not None

    def more(tx: Transaction) -> None:
        turn = ids.make(TURN)
        words = UserSaid(turn_id=turn, parts=(Text("here"),))
        log.append_unheld(tx, found.id, [TurnStarted(turn_id=turn), words], at=clock.now())
        sessions.end(tx, found.id, "user", at=clock.now())

    await database.write(more)
    assert (await taken(database, file))[0].outcome == "behind", "there is nothing new in the source"
    sample_files.write_lines(file, [*lines, sample_files.codex_said(30, "user", "there")])
    left = (await taken(database, file))[0]

    assert left.outcome == "left" and "continued here" in left.notes[-1]
    assert texts(await events(database, found.id))[-1] == "user: here"


async def test_a_rename_or_a_pin_is_not_a_continuation(database: Database, tmp_path: Path, clock: FakeClock) -> None:
    lines = sample_files.codex_lines()
    file = sample_files.write_lines(tmp_path / "r.jsonl", lines)
    found = (await taken(database, file))[0].session
    assert found is not None
    await database.write(lambda tx: sessions.rename(tx, found.id, "mine", at=clock.now()))
    await database.write(lambda tx: sessions.pin(tx, found.id, pinned=True, at=clock.now()))
    assert (await taken(database, file))[0].outcome == "same"
    for n in range(3):  # and again behind that
        lines += [
            sample_files.codex_said(30 + n, "user", f"more {n}"),
            sample_files.codex_said(31 + n, "assistant", "yes"),
        ]
        sample_files.write_lines(file, lines)

        assert (await taken(database, file))[0].outcome == "extended"

    again = await session(database, found.id)
    assert again.summary.title == "mine" and again.summary.pinned
    assert len([event for event in await events(database, found.id) if isinstance(event, Titled)]) == 2
    assert texts(await events(database, found.id))[-2:] == ["user: more 2", "model: yes"]


async def test_a_source_that_was_changed_is_left_alone(database: Database, tmp_path: Path) -> None:
    file = sample_files.codex(tmp_path / "r.jsonl")
    await taken(database, file)
    head = (await session(database, sample_files.CODEX_ID)).hash
    file.write_text(file.read_text().replace("How many files", "How few files"))
    changed = (await taken(database, file))[0]
    sample_files.write_lines(file, sample_files.codex_lines()[:8])
    shorter = (await taken(database, file))[0]

    assert changed.outcome == shorter.outcome == "left"
    assert "changed" in changed.notes[-1] and "truncated" in shorter.notes[-1]
    assert (await session(database, sample_files.CODEX_ID)).hash == head


async def test_a_session_in_the_trash_does_not_grow(database: Database, tmp_path: Path, clock: FakeClock) -> None:
    lines = sample_files.codex_lines()
    file = sample_files.write_lines(tmp_path / "r.jsonl", lines)
    found = (await taken(database, file))[0].session
    assert found is not None
    await database.write(lambda tx: sessions.trash(tx, found.id, at=clock.now()))
    assert (await taken(database, file))[0].outcome == "same"
    sample_files.write_lines(file, [*lines, sample_files.codex_said(30, "user", "more")])

    assert "trash" in (await taken(database, file))[0].notes[-1]


async def test_a_session_in_use_does_not_grow(database: Database, tmp_path: Path, new_worker: NewWorker) -> None:
    lines = sample_files.codex_lines()
    file = sample_files.write_lines(tmp_path / "r.jsonl", lines)
    found = (await taken(database, file))[0].session
    assert found is not None
    worker = await new_worker()
    await database.write(lambda tx: leases.take(tx, found.id, worker))
    sample_files.write_lines(file, [*lines, sample_files.codex_said(30, "user", "more")])

    left = (await taken(database, file))[0]

    assert left.outcome == "left" and "held by" in left.notes[-1]


async def test_an_id_that_is_taken_here_stays_with_its_session(
    database: Database, tmp_path: Path, ids: Ids, clock: FakeClock
) -> None:
    other = (await taken(database, sample_files.codex(tmp_path / "r.jsonl")))[0].session
    assert other is not None
    await database.write(lambda tx: aliases.add(tx, "c1", other.id, at=clock.now()))

    result = (await taken(database, sample_files.hermes_in_place(tmp_path / "state.db").path))[0]

    assert result.outcome == "new" and "c1 is the alias of another session" in result.notes[-1]
    assert (await session(database, "c1")).id == other.id
    assert result.session is not None and (await session(database, "hermes:c1")).id == result.session.id


def foreign(facts: list[Fact], **more: object) -> ForeignSession:
    return ForeignSession(format="test", origin="one", facts=lambda: iter(facts), began_at=1_000_000, **more)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=40)
@given(FACTS.filter(lambda facts: any(isinstance(fact, ImportedInput) for fact in facts)), st.data())
def test_any_source_can_grow_at_any_point(facts: list[Fact], data: st.DataObject) -> None:
    """The next import then finds nothing new."""
    import asyncio
    import tempfile

    cuts = sorted(data.draw(st.lists(st.integers(0, len(facts)), max_size=3)))

    async def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            database = await open_sqlite(Path(folder) / "h" / "holdfast.db")
            try:
                for cut in [*cuts, len(facts)]:
                    result = await sync.import_session(database, foreign(facts[:cut]), at=5)
                    assert result.outcome in ("new", "same", "extended", "empty"), result.notes
                again = await sync.import_session(database, foreign(facts), at=6)
                assert again.outcome == "same", again.notes
                assert again.session is not None
                await entries(database, again.session.id)
                assert (await verify.verify(database)).ok
            finally:
                await database.close()

    asyncio.run(go())


def exchange(n: int) -> list[Fact]:
    return [ImportedInput(at=n + 1, parts=(Text(f"q{n}"),)), ImportedReply(at=n + 1, parts=(Text(f"r{n}"),))]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("has_grown", [False, True])
async def test_an_import_that_dies_at_any_commit_is_completed_by_the_next(
    database: Database, tmp_path: Path, when: Literal["before", "after"], has_grown: bool
) -> None:
    facts = [fact for n in range(1100) for fact in exchange(n)]
    other = await open_sqlite(tmp_path / "other" / "holdfast.db")
    for store in (database, other):
        if has_grown:
            ended = foreign(facts[:2], ended=("user", "x", 9))
            assert (await sync.import_session(store, ended, at=5)).outcome == "new"
    whole = (await sync.import_session(other, foreign(facts), at=5)).session
    await other.close()
    deaths = 0
    while True:
        crashing = CrashingDatabase(database, 2, when)
        try:
            result = await sync.import_session(crashing, foreign(facts), at=5)  # type: ignore[arg-type]
            break
        except Crash:
            deaths += 1
        found = await session(database, "test:one")
        assert found.state == "waiting", "an import at rest looks like a session at rest"
        await entries(database, found.id)

    assert deaths > 1, "it was committed in several pieces"
    assert whole is not None and result.session is not None
    assert (result.session.seq, result.session.hash) == (whole.seq, whole.hash)
    assert (await sync.import_session(database, foreign(facts), at=6)).outcome == "same"


async def test_a_parent_imported_later_is_found_by_its_alias(database: Database) -> None:
    child = msgspec.structs.replace(foreign(exchange(1), parent=ParentSession("boss", 77_000_000)), origin="child")
    await sync.import_session(database, child, at=5)
    boss = msgspec.structs.replace(foreign(exchange(2)), origin="boss", began_at=77_000_000)
    await sync.import_session(database, boss, at=5)

    assert (await session(database, "child")).summary.parent_id == (await session(database, "boss")).id


async def test_the_report_counts_every_message_including_unknown_ones(database: Database, tmp_path: Path) -> None:
    source = sample_files.Hermes(tmp_path / "state.db")
    source.session("s")
    source.exchange("s", "hello", "hi")
    source.say("s", "session_meta", json.dumps({"x": 1}))
    source.say("s", "system", "be good")

    result = (await bring(database, source.path))[0].taken

    assert result is not None
    assert (result.source, result.taken, result.skipped) == (source.count(), 3, 1)
    assert result.notes == ("not imported: a message with the role 'session_meta'",)
