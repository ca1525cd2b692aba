"""The log: fenced appends, complete reads, and drafts of unfinished replies."""

import asyncio

import pytest

from holdfast.model.entry import MAX_BODY_BYTES
from holdfast.model.errors import Busy, Corrupt, Invalid, LeaseLost, NotFound
from holdfast.model.event import Ended, Titled, Trashed, UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import approvals, input_queue, leases, log, outbox, session_pruning, sessions, workers
from holdfast.store.repos.leases import Lease
from holdfast.store.repos.outbox import Address
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession, Spawn
from tests.contract.logs import model, user, whole_turn
from tests.fakes.clock import FakeClock

ODD_TEXTS = {
    "bytes that are not UTF-8": b"ls: \xff\xfe\x80 cut \xe2\x82".decode("utf-8", "surrogateescape"),
    "nul": "before\0after\0",
    "lone surrogates": "\ud83d alone, \udc00 alone, and \ude00\ud83d the wrong way round",
    "every control character": "".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029",
    "emoji and scripts": "👩‍🔬 日本語 שלום ไทย \U0010ffff",
    "what looks escaped": r"\ud83d \u0000 \\ud800 \n",
    "nothing": "",
}


@pytest.fixture
async def lease(database: Database, session: Session, worker: str) -> Lease:
    return await database.write(leases.take, session.id, worker)


async def test_events_are_numbered_without_gaps_and_chained(
    database: Database, session: Session, lease: Lease, clock: FakeClock
) -> None:
    for number in range(5):
        after = await database.write(log.append, lease, whole_turn(f"turn-{number}"), at=clock.now())
    entries = await database.read(log.read_complete, after)

    assert [entry.seq for entry in entries] == list(range(1, after.seq + 1))
    assert [entry.event for entry in entries[1:]] == [e for n in range(5) for e in whole_turn(f"turn-{n}")]
    assert len({entry.hash for entry in entries}) == len(entries)
    assert entries[-1].hash == after.hash


async def test_appending_nothing_changes_nothing(database: Database, session: Session, lease: Lease) -> None:
    after = await database.write(log.append, lease, [], at=9_000_000_000_000_000)

    assert (after.seq, after.hash, after.summary) == (session.seq, session.hash, session.summary)


async def test_a_worker_that_was_suspended_while_declared_dead_can_write_nothing(
    database: Database, session: Session, lease: Lease, new_worker: NewWorker, clock: FakeClock
) -> None:
    freed = await database.write(workers.mark_dead, lease.worker_id, "no sign of life", at=clock.now())
    successor = await database.write(leases.take, session.id, await new_worker())

    with pytest.raises(LeaseLost, match=lease.worker_id):
        await database.write(log.append, lease, [model("from the dead")], at=clock.now())
    with pytest.raises(LeaseLost, match=lease.worker_id):
        await database.write(log.save_draft, lease, log.ReplyDraft("turn-1", "from the dead", clock.now()))

    after = await database.write(log.append, successor, [model("alive")], at=clock.now())
    assert freed == [session.id]
    assert [entry.event for entry in await database.read(log.read_complete, after)][1:] == [model("alive")]
    assert await database.read(log.get_draft, session.id) is None


async def test_a_released_lease_writes_nothing(database: Database, session: Session, lease: Lease) -> None:
    await database.write(leases.release, lease)

    with pytest.raises(LeaseLost):
        await database.write(log.append, lease, [user("late")], at=1)
    again = await database.write(leases.take, session.id, lease.worker_id)
    with pytest.raises(LeaseLost):
        await database.write(log.append, lease, [user("late")], at=1)
    await database.write(log.append, again, [user("in time")], at=1)
    assert len(await database.read(log.read, session.id)) == 2


async def test_a_lease_for_one_session_writes_to_no_other(
    database: Database, lease: Lease, new_session: NewSession
) -> None:
    other = await new_session()

    with pytest.raises(LeaseLost):
        await database.write(log.append, Lease(other.id, lease.worker_id, lease.token), [user("wrong door")], at=1)


@pytest.mark.parametrize("change", [{"token": 0}, {"token": 2}, {"token": -1}, {"worker_id": "worker-other"}])
async def test_a_guessed_lease_writes_nothing(
    database: Database, lease: Lease, session: Session, change: dict[str, object]
) -> None:
    facts = {"session_id": lease.session_id, "worker_id": lease.worker_id, "token": lease.token} | change

    with pytest.raises(LeaseLost):
        await database.write(log.append, Lease(**facts), [user("guess")], at=1)
    assert (await database.read(sessions.get, session.id)).seq == session.seq


async def test_an_append_that_fails_halfway_leaves_nothing(database: Database, session: Session, lease: Lease) -> None:
    def append_and_stumble(tx) -> None:
        log.append(tx, lease, whole_turn(), at=1)
        raise KeyError("stumbled")

    with pytest.raises(KeyError):
        await database.write(append_and_stumble)

    now = await database.read(sessions.get, session.id)
    assert (now.seq, now.hash, now.summary) == (session.seq, session.hash, session.summary)
    assert len(await database.read(log.read_complete, now)) == 1


async def test_many_sessions_grow_concurrently(database: Database, new_session: NewSession, worker: str) -> None:
    held = [await database.write(leases.take, (await new_session()).id, worker) for _ in range(20)]
    await asyncio.gather(
        *(
            database.write(log.append, lease, [user(f"{lease.session_id} {n}")], at=n)
            for n in range(10)
            for lease in held
        )
    )

    for lease in held:
        entries = await database.read(log.read_complete, await database.read(sessions.get, lease.session_id))
        assert [entry.event for entry in entries[1:]] == [user(f"{lease.session_id} {n}") for n in range(10)]


@pytest.mark.process
async def test_a_holder_and_another_process_that_annotates_leave_one_dense_chain(
    database: Database, session: Session, lease: Lease, spawn: Spawn
) -> None:
    writer = await spawn("say", session.id, lease.worker_id, lease.token, 30)
    renamer = await spawn("rename", session.id, 30)
    await asyncio.gather(
        writer.go(),
        renamer.go(),
        *(database.write(log.append, lease, [user(f"here {n}")], at=n) for n in range(30)),
    )

    now = await database.read(sessions.get, session.id)
    entries = await database.read(log.read_complete, now)
    assert now.seq == len(entries) == 91
    assert now.summary.title == "title 29"
    assert now.summary.message_count == 60


# annotations while a worker holds the session


async def test_a_held_session_can_be_annotated(
    database: Database, session: Session, lease: Lease, clock: FakeClock
) -> None:
    await database.write(log.annotate, session.id, Titled(title="beside"), at=clock.now())
    after = await database.write(log.append, lease, [user("goes on")], at=clock.now())

    assert after.summary.title == "beside"
    assert [entry.kind for entry in await database.read(log.read_complete, after)][1:] == ["titled", "user_said"]


@pytest.mark.parametrize("event", [user("words"), model("words"), Ended(reason="user"), Trashed()])
async def test_only_annotations_bypass_the_lease(database: Database, session: Session, event) -> None:
    with pytest.raises(Invalid, match="needs the lease"):
        await database.write(log.annotate, session.id, event, at=1)

    assert (await database.read(sessions.get, session.id)).seq == session.seq


async def test_an_append_without_a_lease_needs_a_session_that_no_worker_holds(
    database: Database, session: Session, worker: str
) -> None:
    after = await database.write(log.append_unheld, session.id, [user("free")], at=1)
    await database.write(leases.take, session.id, worker)

    with pytest.raises(Busy, match=f"held by {worker}"):
        await database.write(log.append_unheld, session.id, [user("held")], at=1)
    assert (await database.read(sessions.get, session.id)).seq == after.seq
    for unfenced in (log.append_unheld, log.annotate):
        with pytest.raises(NotFound, match="hf-nobody"):
            await database.write(
                unfenced, "hf-nobody", Titled(title="x") if unfenced is log.annotate else [user("x")], at=1
            )


# reading


async def test_a_range_includes_both_ends(database: Database, session: Session, lease: Lease) -> None:
    await database.write(log.append, lease, [user(str(n)) for n in range(2, 11)], at=1)

    async def numbers(**limits: int) -> list[int]:
        return [entry.seq for entry in await database.read(log.read, session.id, **limits)]

    assert await numbers() == list(range(1, 11))
    assert await numbers(first=4, last=6) == [4, 5, 6]
    assert await numbers(first=10) == [10]
    assert await numbers(first=11) == []
    assert await numbers(last=0) == []
    assert await numbers(first=-5, last=2) == [1, 2]


async def test_the_tail_is_the_newest_events_in_order(database: Database, session: Session, lease: Lease) -> None:
    now = await database.write(log.append, lease, [user(str(n)) for n in range(2, 11)], at=1)

    for count, expected in ((3, [8, 9, 10]), (10, list(range(1, 11))), (50, list(range(1, 11))), (1, [10])):
        assert [entry.seq for entry in await database.read(log.read_tail, now, count)] == expected


async def test_the_log_of_an_unknown_session_is_empty(database: Database) -> None:
    assert await database.read(log.read, "hf-nobody") == []


async def test_an_outdated_session_row_does_not_pass_as_the_whole_log(
    database: Database, session: Session, lease: Lease
) -> None:
    await database.write(log.append, lease, [user("more")], at=1)

    with pytest.raises(Corrupt, match="2 events are stored, but its row names event 1"):
        await database.read(log.read_complete, session)


# content


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
async def test_any_text_is_stored_unchanged(database: Database, session: Session, lease: Lease, text: str) -> None:
    said = [user(text), model(text)]
    after = await database.write(log.append, lease, said, at=1)

    assert [entry.event for entry in await database.read(log.read_complete, after)][1:] == said
    assert after.summary.preview.isprintable() or "\u200d" in after.summary.preview
    assert (await database.read(sessions.get, session.id)).summary == after.summary


async def test_a_message_of_fifty_megabytes_is_stored_completely(
    database: Database, session: Session, lease: Lease
) -> None:
    text = "0123456789abcde\n" * (50 * 1024 * 1024 // 16)
    after = await database.write(log.append, lease, [user(text)], at=1)
    entries = await database.read(log.read_complete, after)

    assert entries[1].event.parts == (Text(text),)
    assert len(after.summary.preview) <= 120
    assert (await database.write(log.append, lease, [user("and on")], at=2)).seq == 3


async def test_a_message_over_the_limit_is_refused_and_nothing_of_its_append_is_written(
    database: Database, session: Session, lease: Lease
) -> None:
    huge = UserSaid(turn_id="turn-1", parts=(Text("\0" * (MAX_BODY_BYTES // 6)),))

    with pytest.raises(Invalid, match="over the limit"):
        await database.write(log.append, lease, [user("before it"), huge], at=1)
    assert len(await database.read(log.read, session.id)) == 1
    after = await database.write(log.append, lease, [user("after it")], at=1)
    assert len(await database.read(log.read_complete, after)) == 2


# drafts


async def test_a_draft_is_the_newest_text_until_it_is_deleted(
    database: Database, session: Session, lease: Lease
) -> None:
    assert await database.read(log.get_draft, session.id) is None
    for body in ("Good", "Good mor", "Good morning"):
        await database.write(log.save_draft, lease, log.ReplyDraft("turn-1", body, 1))
        assert await database.read(log.get_draft, session.id) == log.ReplyDraft("turn-1", body, 1)

    def commit(tx) -> None:
        log.append(tx, lease, [model("Good morning")], at=2)
        log.delete_draft(tx, session.id)

    await database.write(commit)
    assert await database.read(log.get_draft, session.id) is None


async def test_a_draft_is_not_part_of_the_log(database: Database, session: Session, lease: Lease) -> None:
    await database.write(log.save_draft, lease, log.ReplyDraft("turn-1", "half a", 1))
    now = await database.read(sessions.get, session.id)

    assert now.summary == session.summary
    assert len(await database.read(log.read_complete, now)) == 1


async def test_a_draft_outlives_the_worker_that_saved_it(
    database: Database, session: Session, lease: Lease, new_worker: NewWorker
) -> None:
    await database.write(log.save_draft, lease, log.ReplyDraft("turn-1", "half a", 1))
    await database.write(workers.mark_dead, lease.worker_id, "gone", at=2)
    successor = await database.write(leases.take, session.id, await new_worker())

    assert await database.read(log.get_draft, session.id) == log.ReplyDraft("turn-1", "half a", 1)
    await database.write(log.save_draft, successor, log.ReplyDraft("turn-1", "half a word", 3))
    assert (await database.read(log.get_draft, session.id)).body == "half a word"


# the end of a turn


CLEANUP = {
    "has_draft": lambda tx, lease: log.save_draft(tx, lease, log.ReplyDraft("turn-1", "half a", 1)),
    "has_questions": lambda tx, lease: approvals.ask(tx, lease.session_id, "turn-1", "call-1", "Run it?", at=1),
    "has_reply_addresses": lambda tx, lease: outbox.add_reply_address(
        tx, lease.session_id, "turn-1", Address("telegram", "chat-1", ""), at=1
    ),
    "has_input": lambda tx, lease: input_queue.request_stop(tx, lease.session_id, "turn-1", at=1),
}


@pytest.mark.parametrize("flag", CLEANUP)
async def test_the_lock_at_the_end_of_a_turn_reports_what_must_be_cleaned_up(
    database: Database, new_session: NewSession, lease: Lease, worker: str, flag: str
) -> None:
    other = await database.write(leases.take, (await new_session()).id, worker)
    await database.write(CLEANUP[flag], lease)

    def flags(tx, held: Lease) -> set[str]:
        found = log.lock_at_turn_end(tx, held)
        return {name for name in CLEANUP if getattr(found, name)}

    assert await database.write(flags, lease) == {flag}
    assert await database.write(flags, other) == set()


async def test_an_answered_question_needs_no_cleanup(database: Database, lease: Lease) -> None:
    await database.write(CLEANUP["has_questions"], lease)
    await database.write(approvals.withdraw, lease.session_id, at=2)

    assert not (await database.write(log.lock_at_turn_end, lease)).has_questions


async def test_a_worker_without_the_lease_cannot_lock_the_end_of_a_turn(
    database: Database, session: Session, lease: Lease
) -> None:
    await database.write(workers.mark_dead, lease.worker_id, "gone", at=2)

    with pytest.raises(LeaseLost):
        await database.write(log.lock_at_turn_end, lease)


async def test_commits_of_another_writer_before_the_lock_are_seen_at_the_end_of_a_turn(
    database: Database, another: Database, lease: Lease
) -> None:
    """The writers wait for each other, so no input stays in the queue of a session that is released."""

    def end(tx) -> bool:
        has_input = log.lock_at_turn_end(tx, lease).has_input
        if not has_input:
            leases.release(tx, lease)
        return has_input

    def put(tx) -> bool:
        input_queue.request_stop(tx, lease.session_id, "turn-1", at=1)
        return sessions.get(tx, lease.session_id).lease_worker is not None

    for _ in range(20):
        has_input, was_held = await asyncio.gather(database.write(end), another.write(put))
        assert has_input == was_held
        await database.write(input_queue.delete_stop_requests, lease.session_id)
        lease = await database.write(leases.take, lease.session_id, lease.worker_id)


# the whole store in order


async def test_events_can_be_followed_across_sessions_in_the_order_of_their_commits(
    database: Database, new_session: NewSession, worker: str
) -> None:
    held = [await database.write(leases.take, (await new_session()).id, worker) for _ in range(3)]
    start = (await database.read(lambda tx: tx.one("log.get_last_position")))[0]
    for number in range(9):
        await database.write(log.append, held[number % 3], [user(str(number))], at=number)
    end = (await database.read(lambda tx: tx.one("log.get_last_position")))[0]
    rows = await database.read(lambda tx: tx.all("log.list_after_position", after=start, upto=end, limit=100))

    assert [row[1] for row in rows] == [held[number % 3].session_id for number in range(9)]
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})
    assert await database.read(lambda tx: tx.one("log.get_at_position", position=end)) == rows[-1][1:]


async def test_a_position_is_never_reused_after_its_session_was_pruned(
    database: Database, new_session: NewSession
) -> None:
    gone = await new_session()
    await database.write(sessions.trash, gone.id, at=1)
    before = (await database.read(lambda tx: tx.one("log.get_last_position")))[0]
    assert await database.write(session_pruning.prune, gone.id, before=2)
    await new_session()

    assert (await database.read(lambda tx: tx.one("log.get_last_position")))[0] > before


async def test_an_append_wakes_the_listeners_of_the_session(database: Database, session: Session, lease: Lease) -> None:
    async with asyncio.timeout(10):
        listening = database.listen(session.id)
        await anext(listening)
        await database.write(log.append, lease, [user("news")], at=1)
        await anext(listening)
        await listening.aclose()


async def test_a_log_is_read_in_pages_and_every_page_is_verified(
    database: Database, session: Session, lease: Lease, clock: FakeClock
) -> None:
    for number in range(4):
        after = await database.write(log.append, lease, whole_turn(f"turn-{number}"), at=clock.now())
    whole = await database.read(log.read_complete, after)
    pages, last = [], 0
    while page := await database.read(log.read_page, after, after=last, limit=3):
        pages += page
        last = page[-1].seq

    assert pages == whole
    assert await database.read(log.read_page, after, after=10**15, limit=3) == []

    await database.write(lambda tx: tx.run("session_pruning.erase_events", id=session.id))
    with pytest.raises(Corrupt, match="event 4 is missing"):
        await database.read(log.read_page, after, after=3, limit=3)
