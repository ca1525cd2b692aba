"""An export can be verified from the file alone and is imported unchanged or not at all."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.interop.export import jsonl
from holdfast.interop.importing import own_export
from holdfast.model.entry import GENESIS, dumps, encode, link
from holdfast.model.errors import Busy, Conflict, Corrupt, HoldfastError, Invalid, Unsupported
from holdfast.model.event import SessionOpened, Titled, UserSaid
from holdfast.model.ids import SESSION, TURN, Ids
from holdfast.model.message import Text
from holdfast.model.times import from_iso
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import aliases, leases, log, log_import, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.seed import NASTY, turn
from tests.conftest import NewWorker
from tests.fakes.clock import FakeClock


@pytest.fixture
async def session_id(database: Database, ids: Ids, clock: FakeClock) -> str:
    def work(tx: Transaction) -> str:
        session, _ = sessions.create(tx, ids.make(SESSION), SessionOpened(source="chat", model="m"), at=clock.now())
        log.append_unheld(tx, session.id, turn(ids.make(TURN), NASTY, "fine"), at=clock.now())
        aliases.add(tx, "an-older-name", session.id, at=clock.now())
        return session.id

    return await database.write(work)


@pytest.fixture
async def other(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Another store."""
    opened = await open_sqlite(tmp_path / "other" / "holdfast.db")
    yield opened
    await opened.close()


async def exported(database: Database, session_id: str) -> list[bytes]:
    text = "".join([piece async for piece in jsonl.export_lines(database, session_id)])
    return text.encode("ascii").splitlines(keepends=True)


async def test_the_hashes_can_be_computed_from_the_file_alone(database: Database, session_id: str) -> None:
    header, *events = [json.loads(line) for line in await exported(database, session_id)]

    previous = GENESIS
    for event in events:
        previous = link(previous, event["kind"], from_iso(event["at"]), dumps(event["body"]))
        assert previous == event["hash"]
    assert previous == header["hash"]


async def test_a_log_longer_than_one_read_is_exported_completely(
    database: Database, session_id: str, clock: FakeClock
) -> None:
    def more(tx: Transaction) -> None:
        log.append_unheld(tx, session_id, [Titled(title=f"title {n}") for n in range(2 * jsonl.CHUNK)], at=clock.now())

    await database.write(more)

    lines = await exported(database, session_id)

    assert own_export.verify_export(lines, "it").proved.seq == len(lines) - 1 == 2 * jsonl.CHUNK + 8


async def test_a_damaged_log_is_not_exported_as_complete(database: Database, session_id: str) -> None:
    await database.write(lambda tx: tx.run("log_import.extend", session=session_id, seq=9, hash="x", had=8))

    with pytest.raises(Corrupt):
        await exported(database, session_id)


async def test_an_imported_session_has_its_hash_summary_and_aliases(
    database: Database, other: Database, session_id: str
) -> None:
    parsed = own_export.verify_export(await exported(database, session_id), "it")

    merged = await other.write(own_export.store, parsed, at=1)

    ours = await database.read(sessions.get, session_id)
    assert (merged.outcome, merged.added) == ("new", 8)
    assert (merged.session.seq, merged.session.hash) == (ours.seq, ours.hash)
    assert merged.session.summary == ours.summary
    assert (await other.read(sessions.resolve, "an-older-name")).session.id == session_id
    assert await other.read(log.read_complete, merged.session) == await database.read(log.read_complete, ours)


async def test_a_reformatted_file_still_verifies(database: Database, session_id: str) -> None:
    lines = await exported(database, session_id)
    loose = [json.dumps(json.loads(line), ensure_ascii=True, separators=(", ", " : ")).encode() for line in lines]

    parsed = own_export.verify_export(
        [b"\xef\xbb\xbf" + loose[0] + b"\r\n", b"\n", *(line + b"\r\n" for line in loose[1:])], "it"
    )

    assert parsed.header.seq == 8


def edit(lines: list[bytes], number: int, change: Callable[[dict], None]) -> list[bytes]:  # type: ignore[type-arg]
    value = json.loads(lines[number - 1])
    change(value)
    return [*lines[: number - 1], json.dumps(value).encode() + b"\n", *lines[number:]]


def rename(event: dict) -> None:  # type: ignore[type-arg]
    event["kind"] = "titled"


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda lines: [], Invalid, "is empty"),
        (lambda lines: [b"\n", b"  \n"], Invalid, "is empty"),
        (lambda lines: [b"\x89PNG\r\n", b"\xff\xfe"], Invalid, "line 1: this is not text"),
        (lambda lines: [b"[1, 2]\n"], Invalid, "line 1: the first line must be a header"),
        (lambda lines: [b'{"format": "something else"}\n'], Invalid, "line 1: the first line must be a header"),
        (lambda lines: [b"[" * 100_000], Invalid, "line 1: this is not a JSON value"),
        (lambda lines: lines[1:], Invalid, "line 1: the first line must be a header"),
        (lambda lines: lines[:-1], Corrupt, "is truncated: its header announces 8 events, but it contains 7"),
        (lambda lines: lines[:1], Corrupt, "is truncated"),
        (lambda lines: [*lines[:-1], lines[-1][:-20]], Invalid, "line 9: this is not a JSON value"),
        (lambda lines: [*lines[:4], *lines[5:]], Corrupt, "line 5: event 4 is missing"),
        (lambda lines: [*lines[:5], lines[4], *lines[5:]], Corrupt, "line 6: event 5 is missing"),
        (lambda lines: [*lines, lines[-1]], Corrupt, "line 10: event 9 is missing"),
        (lambda lines: edit(lines, 1, lambda h: h.update(version=2)), Unsupported, "line 1: this is version 2"),
        (lambda lines: edit(lines, 1, lambda h: h.pop("seq")), Invalid, "line 1: the header is invalid"),
        (lambda lines: edit(lines, 1, lambda h: h.update(session=3)), Invalid, "line 1: the header has no"),
        (lambda lines: edit(lines, 1, lambda h: h["session"].update(id="../../x")), Invalid, "is not a session id"),
        (lambda lines: edit(lines, 1, lambda h: h.update(hash="0" * 64)), Corrupt, "does not end with the event"),
        (lambda lines: edit(lines, 3, rename), Corrupt, "line 3: event 2 (titled) was changed"),
        (lambda lines: edit(lines, 4, lambda e: e["body"].update(name="x")), Corrupt, "line 4: event 3"),
        (lambda lines: edit(lines, 4, lambda e: e.update(at="2026-01-01T00:00:00Z")), Corrupt, "line 4: event 3"),
        (
            lambda lines: edit(lines, 4, lambda e: e.update(at="yesterday")),
            Corrupt,
            "line 4: this event cannot be read",
        ),
        (lambda lines: edit(lines, 4, lambda e: e.update(at="2026-01-01T00:00:00")), Corrupt, "no time zone"),
        (lambda lines: edit(lines, 4, lambda e: e.update(body=[])), Invalid, "line 4: this is not an event"),
        (lambda lines: edit(lines, 4, lambda e: e["body"].update(x=float("nan"))), Corrupt, "line 4: this event"),
    ],
)
async def test_a_damaged_file_is_refused_and_the_line_is_named(
    database: Database,
    session_id: str,
    spoil: Callable[[list[bytes]], list[bytes]],
    error: type[HoldfastError],
    says: str,
) -> None:
    with pytest.raises(error) as caught:
        own_export.verify_export(spoil(await exported(database, session_id)), "the file")

    assert str(caught.value).startswith("the file")
    assert says in str(caught.value) and "nothing was imported" in str(caught.value)


async def test_an_event_kind_of_a_later_release_is_refused_with_a_reason(database: Database, session_id: str) -> None:
    header, first = (await exported(database, session_id))[:2]
    opened, value = json.loads(first), json.loads(header)
    body = {"from": "the future"}
    hash_ = link(opened["hash"], "teleported", from_iso(opened["at"]), dumps(body))
    later = {"seq": 2, "kind": "teleported", "at": opened["at"], "hash": hash_, "body": body}
    value |= {"seq": 2, "hash": hash_}

    with pytest.raises(Unsupported, match="teleported"):
        own_export.verify_export([json.dumps(value).encode(), first, json.dumps(later).encode()], "the file")


async def test_an_import_is_one_transaction(database: Database, other: Database, session_id: str) -> None:
    parsed = own_export.verify_export(await exported(database, session_id), "it")

    def half(tx: Transaction) -> None:
        own_export.store(tx, parsed, at=1)
        raise Conflict("the power went")

    with pytest.raises(Conflict):
        await other.write(half)

    assert await other.read(lambda tx: tx.one("sessions.get", id=session_id)) is None


async def test_an_import_adds_nothing_to_a_session_in_use(
    database: Database, session_id: str, clock: FakeClock, new_worker: NewWorker
) -> None:
    worker = await new_worker()
    short = own_export.verify_export(await exported(database, session_id), "it")
    await database.write(lambda tx: sessions.rename(tx, session_id, "longer", at=clock.now()))
    long = own_export.verify_export(await exported(database, session_id), "it")
    other = await open_sqlite(Path(str(database.path) + ".other"))  # type: ignore[attr-defined]
    await other.write(own_export.store, short, at=1)
    await database.write(lambda tx: leases.take(tx, session_id, worker))
    assert (await database.write(own_export.store, long, at=1)).outcome == "same", "nothing is to be added"

    def hold(tx: Transaction) -> None:
        tx.run("workers.register", id="w", kind="k", host="h", boot="b", pid=1, process_started="1", version="1", at=1)
        leases.take(tx, session_id, "w")

    await other.write(hold)
    with pytest.raises(Busy):
        await other.write(own_export.store, long, at=1)
    await other.close()


async def test_an_id_that_is_an_alias_here_is_not_taken_over(
    database: Database, other: Database, session_id: str, ids: Ids, clock: FakeClock
) -> None:
    parsed = own_export.verify_export(await exported(database, session_id), "it")

    def mine(tx: Transaction) -> None:
        session, _ = sessions.create(tx, ids.make(SESSION), SessionOpened(source="chat"), at=clock.now())
        aliases.add(tx, session_id, session.id, at=clock.now())

    await other.write(mine)

    with pytest.raises(Conflict, match="is an alias of"):
        await other.write(own_export.store, parsed, at=1)


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANY_TEXT)
def test_any_text_survives_export_and_import(text: str) -> None:
    body = encode(UserSaid(turn_id="t", parts=(Text(text),)))
    line = log_import.StoredEvent(
        1, "user_said", 1_800_000_000_123_456, link(GENESIS, "user_said", 1_800_000_000_123_456, body), body
    )

    written = json.loads(jsonl.event_line(line))

    assert dumps(written["body"]) == body
    assert from_iso(written["at"]) == line.at


async def test_the_program_in_the_documentation_verifies_a_file(database: Database, session_id: str) -> None:
    page = Path(__file__).parents[3] / "docs" / "export-format.md"
    program = page.read_text().partition("```python\n")[2].partition("```")[0]
    lines = await exported(database, session_id)

    exec(program, {"lines": lines})

    with pytest.raises(AssertionError):
        exec(program, {"lines": [lines[0], lines[1].replace(b"chat", b"cron"), *lines[2:]]})
