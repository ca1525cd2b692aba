"""The inbox, the outbox, contacts and schedules, on every store."""

import asyncio

import msgspec
import pytest

from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.session import Session
from holdfast.model.times import MINUTE
from holdfast.store.database import Database
from holdfast.store.repos import contacts, inbox, outbox, platforms, schedules, session_pruning, sessions, workers
from holdfast.store.repos.contacts import Person
from holdfast.store.repos.inbox import NewInboundMessage
from holdfast.store.repos.outbox import Address, OutboundMessage
from holdfast.store.repos.schedules import Schedule, ScheduleSlot
from tests.conftest import NewWorker

HERE = Address("fake", "c1", "m1")


def post(number: int, chat: str = "c1", **more: str) -> NewInboundMessage:
    return NewInboundMessage(
        **{"id": f"in-{chat}-{number}", "chat": chat, "message": f"m{number}", "payload": '"p"', "digest": "d", **more}
    )  # type: ignore[arg-type]


async def put(database: Database, *posts: NewInboundMessage, position: str | None = None) -> list[inbox.IntakeResult]:
    return await database.write(inbox.put, "fake", posts, at=1, position=position)


async def test_a_message_is_stored_once_with_the_read_position(database: Database, another: Database) -> None:
    first = await put(database, post(1), post(2), position="two")
    again = await put(another, msgspec.structs.replace(post(1), id="in-other", digest="e"), position="three")
    found = await database.read(platforms.get, "fake")

    assert [taken.new for taken in first] == [True, True]
    assert [(taken.new, taken.changed) for taken in again] == [(False, True)]
    assert found is not None
    assert found.position == "three"
    assert (await database.read(inbox.get, "in-c1-1")).repeats == 1


async def test_of_many_concurrent_deliveries_one_is_the_first(database: Database, another: Database) -> None:
    found = await asyncio.gather(
        *(put((database, another)[n % 2], msgspec.structs.replace(post(1), id=f"in-{n}")) for n in range(20))
    )

    assert sum(taken.new for [taken] in found) == 1


async def test_each_chat_has_one_next_message(database: Database) -> None:
    await put(database, post(1), post(1, "c2"), post(2), post(2, "c2"))
    heads = await database.read(inbox.list_heads, "fake")
    await database.write(inbox.mark_done, "in-c1-1", "said", session="hf-1", turn="turn-1")
    after = await database.read(inbox.list_heads, "fake")

    assert [letter.id for letter in heads] == ["in-c1-1", "in-c2-1"]
    assert {letter.id for letter in after} == {"in-c2-1", "in-c1-2"}
    assert (await database.read(inbox.get, "in-c1-1")).payload == ""
    assert await database.read(inbox.find_next, "fake", "c1") == await database.read(inbox.get, "in-c1-2")


async def serving(database: Database, new_worker: NewWorker) -> str:
    """A worker that serves the platform."""
    worker = await new_worker()
    assert await database.write(platforms.take, "fake", worker, at=1) is not None
    return worker


async def test_a_message_is_marked_as_handled_once(database: Database, new_worker: NewWorker) -> None:
    worker = await serving(database, new_worker)
    await put(database, post(1))

    assert await database.write(inbox.mark_done, "in-c1-1", "said")
    assert not await database.write(inbox.mark_done, "in-c1-1", "said again")
    assert await database.write(inbox.begin, "in-c1-1", worker) is None


async def test_a_worker_that_no_longer_serves_a_platform_handles_nothing(
    database: Database, new_worker: NewWorker
) -> None:
    late = await serving(database, new_worker)
    await database.write(workers.mark_dead, late, "dead", at=2)
    await serving(database, new_worker)
    await put(database, post(1))
    await database.write(outbox.put, "out-1", HERE, OutboundMessage(text="x"), at=1)

    assert await database.write(inbox.begin, "in-c1-1", late) is None
    assert await database.write(outbox.begin, "out-1", late) is None


async def test_attempts_are_counted_before_they_start_and_can_be_uncounted(
    database: Database, new_worker: NewWorker
) -> None:
    worker = await serving(database, new_worker)
    await put(database, post(1))
    begun = [await database.write(inbox.begin, "in-c1-1", worker) for _ in range(2)]
    await database.write(inbox.put_back, "in-c1-1", "the store was away")
    left = await database.read(inbox.get, "in-c1-1")

    assert [one.attempts for one in begun if one] == [1, 2]
    assert (left.state, left.attempts) == ("waiting", 1)


async def test_a_dead_letter_keeps_its_payload_and_can_be_replayed_under_its_real_id(database: Database) -> None:
    odd = post(1, "?", payload='"odd"', fault="no json")
    await put(database, odd, post(7))
    [dead] = await database.read(inbox.list_dead, 10)
    await database.write(inbox.replay, dead, at=2)
    with pytest.raises(Conflict, match="not dead"):
        await database.write(inbox.replay, await database.read(inbox.get, dead.id), at=2)
    renamed = await database.write(inbox.rename, dead, "c9", "m9")
    found = await database.read(inbox.get, dead.id)

    assert (dead.payload, dead.outcome, dead.state) == ('"odd"', "no json", "dead")
    assert renamed
    assert (found.chat, found.message, found.state) == ("c9", "m9", "waiting")
    assert await database.read(inbox.count_by_state) == [("fake", "waiting", 2)]


async def test_a_replayed_duplicate_is_dropped(database: Database) -> None:
    await put(database, post(1, "?", fault="no json"), post(7))
    [dead] = await database.read(inbox.list_dead, 10)
    await database.write(inbox.replay, dead, at=2)

    assert not await database.write(inbox.rename, dead, "c1", "m7")
    assert (await database.read(inbox.get, dead.id)).state == "done"


async def test_a_dismissed_letter_is_kept_not_listed_and_can_be_replayed(
    database: Database, new_worker: NewWorker
) -> None:
    worker = await serving(database, new_worker)
    await put(database, post(1, "?", payload='"odd"', fault="no json"))
    await database.write(outbox.put, "out-1", HERE, OutboundMessage(text="x"), at=1)
    [dead] = await database.read(inbox.list_dead, 10)
    with pytest.raises(Conflict, match="nothing to dismiss"):
        await database.write(lambda tx: outbox.dismiss(tx, outbox.list_heads(tx, "fake")[0], at=2))
    await database.write(outbox.begin, "out-1", worker)
    await database.write(outbox.fail, "out-1", "no")
    [failed] = await database.read(outbox.list_undelivered, 10)
    await database.write(inbox.dismiss, dead, at=3)
    await database.write(outbox.dismiss, failed, at=3)

    assert await database.read(inbox.list_dead, 10) == await database.read(outbox.list_undelivered, 10) == []
    assert await database.read(inbox.count_by_state) == await database.read(outbox.count_by_state) == []
    kept = await database.read(inbox.get, dead.id)
    assert (kept.state, kept.payload, kept.dismissed_at) == ("dead", '"odd"', 3)
    with pytest.raises(Conflict, match="nothing to dismiss"):
        await database.write(inbox.dismiss, dead, at=4)
    await database.write(inbox.replay, kept, at=5)
    await database.write(outbox.replay, failed, at=5)
    assert (await database.read(inbox.get, dead.id)).dismissed_at is None
    assert [one.dismissed_at for one in await database.read(outbox.list_heads, "fake")] == [None]


async def test_a_delivery_is_recorded_at_each_state(database: Database, new_worker: NewWorker) -> None:
    one = await serving(database, new_worker)
    await database.write(outbox.put, "out-1", HERE, OutboundMessage(text="a\udcffb\0"), at=1)
    await database.write(outbox.put, "out-1", HERE, OutboundMessage(text="twice"), at=1)
    begun = await database.write(outbox.begin, "out-1", one)
    assert begun is not None
    await database.write(platforms.release, "fake", one, at=2)
    other = await serving(database, new_worker)
    assert await database.write(outbox.begin, "out-1", other) is None
    part = await database.write(outbox.mark_part_sent, begun, one, "r1", last=False, at=2)
    again = await database.write(outbox.begin, "out-1", other)
    assert part is not None
    assert again is not None
    assert await database.write(outbox.mark_part_sent, again, one, "r2", last=True, at=3) is None
    done = await database.write(outbox.mark_part_sent, again, other, "r2", last=True, at=3)

    assert begun.message == OutboundMessage(text="a\udcffb\0", reply_to="m1")
    assert (part.state, part.part) == ("waiting", 1)
    assert done is not None
    assert (done.state, done.remotes, done.sent_at) == ("sent", ["r1", "r2"], 3)
    assert await database.read(outbox.count_by_state) == []


async def test_each_chat_has_one_next_delivery(database: Database) -> None:
    for number, chat in enumerate(("c1", "c2", "c1"), 1):
        await database.write(outbox.put, f"out-{number}", Address("fake", chat), OutboundMessage(text="x"), at=number)

    assert [one.id for one in await database.read(outbox.list_heads, "fake")] == ["out-1", "out-2"]
    await database.write(outbox.fail, "out-1", "no")
    assert [one.id for one in await database.read(outbox.list_heads, "fake")] == ["out-2", "out-3"]


async def test_unknown_deliveries_are_counted_permanently(database: Database, new_worker: NewWorker) -> None:
    worker = await serving(database, new_worker)
    await database.write(outbox.put, "out-1", HERE, OutboundMessage(text="x"), at=1)
    await database.write(outbox.begin, "out-1", worker)
    held = await database.write(outbox.mark_unknown, "out-1", "who knows", hold=True, due=5)
    assert held is not None
    problem = await database.read(outbox.list_undelivered, 10)
    await database.write(outbox.replay, held, at=6)
    begun = await database.write(outbox.begin, "out-1", worker)
    assert begun is not None
    done = await database.write(outbox.mark_part_sent, begun, worker, "r", last=True, at=7)

    assert [(one.state, one.doubts, one.unsure) for one in problem] == [("unknown", 1, 1)]
    assert done is not None
    assert (done.state, done.doubts, done.unsure) == ("sent", 1, 0)
    with pytest.raises(Conflict, match="nothing to replay"):
        await database.write(outbox.replay, done, at=8)


async def test_a_pruned_session_deletes_its_replies(database: Database, session: Session) -> None:
    await database.write(outbox.add_reply_address, session.id, "turn-1", HERE, at=1)
    await database.write(
        outbox.put, "out-1", HERE, OutboundMessage(text="x"), at=1, session_id=session.id, turn_id="turn-1"
    )
    assert await database.read(outbox.list_reply_addresses, session.id, "turn-1") == [HERE]
    await database.write(sessions.trash, session.id, at=2)

    assert await database.write(session_pruning.prune, session.id, before=100)
    assert await database.read(outbox.find, "out-1") is None


async def test_one_worker_serves_a_platform_until_it_is_gone(database: Database, new_worker: NewWorker) -> None:
    one, other = await new_worker(), await new_worker()
    assert await database.write(platforms.take, "fake", one, at=1) is not None
    assert await database.write(platforms.take, "fake", other, at=2) is None
    await database.write(platforms.record_state, "fake", one, "connected", at=3)
    await database.write(platforms.record_state, "fake", other, "down", at=4, error="not mine")
    await database.write(workers.mark_dead, one, "dead", at=5)
    taken = await database.write(platforms.take, "fake", other, at=6)

    assert taken is not None
    assert (taken.worker_id, taken.state, taken.error) == (other, "connecting", "")


async def test_unknown_people_are_paired_by_a_code_that_is_valid_for_an_hour(database: Database) -> None:
    unknown = Person("fake", "mallory", "Mallory", "ABCD-1234", "asked", 1)
    assert await database.write(contacts.request_pairing, unknown) == "ABCD-1234"
    assert await database.write(contacts.request_pairing, msgspec.structs.replace(unknown, code="NEW", at=2)) is None
    with pytest.raises(NotFound):
        await database.write(contacts.approve, "abcd-1234", at=1 + 61 * MINUTE)
    assert not await database.read(contacts.is_allowed, "fake", "mallory")
    await database.write(contacts.approve, "abcd-1234", at=3)

    assert await database.read(contacts.is_allowed, "fake", "mallory")
    await database.write(contacts.revoke, "fake", "mallory")
    assert not await database.read(contacts.is_allowed, "fake", "mallory")


async def test_the_number_of_pairing_requests_is_limited(database: Database) -> None:
    codes = [
        await database.write(contacts.request_pairing, Person("fake", f"p{n}", "", f"C{n}", "asked", 1))
        for n in range(contacts.MAX_PAIRING_REQUESTS + 5)
    ]

    assert sum(code is not None for code in codes) == contacts.MAX_PAIRING_REQUESTS


def schedule() -> Schedule:
    return Schedule("cron-abcdef", "* * * * *", "UTC", "hi", None, None, "run", 60, 1)


async def test_of_many_concurrent_workers_one_advances_a_slot(database: Database, another: Database) -> None:
    await database.write(schedules.add, schedule())
    moved = await asyncio.gather(
        *((database, another)[n % 2].write(schedules.advance, schedule(), 120) for n in range(20))
    )

    assert sum(moved) == 1
    assert (await database.read(schedules.resolve, "abcd")).next_at == 120


async def test_a_slot_has_one_row_and_one_end(database: Database) -> None:
    await database.write(schedules.add, schedule())
    slot = ScheduleSlot("cron-abcdef", 60, "running", "", "hf-1", "turn-1", 1, None)
    assert await database.write(schedules.open_slot, slot)
    assert not await database.write(schedules.open_slot, slot)
    assert await database.read(schedules.is_running, "cron-abcdef")
    assert await database.write(schedules.close_slot, "hf-1", "turn-1", "done", "", at=5)
    assert not await database.write(schedules.close_slot, "hf-1", "turn-1", "failed", "late", at=6)

    assert await database.read(schedules.count_slots, "cron-abcdef") == {"done": 1}
    assert [one.ended_at for one in await database.read(schedules.list_slots, "cron-abcdef", 10)] == [5]


async def test_a_channel_is_a_platform_and_a_chat(database: Database) -> None:
    assert outbox.parse_channel("matrix:!room:server") == Address("matrix", "!room:server")
    for wrong in ("telegram", "telegram:", ":42", ""):
        with pytest.raises(Invalid, match="is not a chat"):
            outbox.parse_channel(wrong)
