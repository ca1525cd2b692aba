"""Sessions in the store: created once, renamed, pinned, ended, reopened, trashed and restored."""

import asyncio

import pytest

from holdfast.model.errors import Busy, Invalid, NotFound
from holdfast.model.event import Ended, Quarantined, Reopened, SessionOpened, TurnStarted
from holdfast.model.ids import SESSION, Ids
from holdfast.model.session import TITLE_LENGTH, Session, messages, summarise
from holdfast.store.database import Database
from holdfast.store.repos import aliases, approvals, idempotency, input_queue, leases, log, session_pruning, sessions
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession, Spawn
from tests.contract.logs import is_well_formed, model, user, whole_turn
from tests.fakes.clock import FakeClock
from tests.fakes.forks import fork_session

OPENED = SessionOpened(source="chat", model="scripted:echo", title="Plans", channel="cli:tty1", workdir="/src")


async def test_a_new_session_is_as_it_was_opened(database: Database, clock: FakeClock) -> None:
    session, new = await database.write(sessions.create, "hf-1", OPENED, at=clock.now())
    entries = await database.read(log.read_complete, session)

    assert new
    assert session == await database.read(sessions.get, "hf-1")
    assert [entry.event for entry in entries] == [OPENED]
    assert (session.seq, session.state, session.summary.title) == (1, "waiting", "Plans")
    assert (session.summary.source, session.summary.channel) == ("chat", "cli:tty1")
    assert (session.summary.created_at, session.summary.updated_at) == (clock.now(), clock.now())


async def test_creating_a_session_again_returns_it_unchanged(database: Database, clock: FakeClock) -> None:
    first, _ = await database.write(sessions.create, "hf-1", OPENED, at=clock.now())
    clock.pass_seconds(5)
    again, new = await database.write(sessions.create, "hf-1", SessionOpened(source="api"), at=clock.now())

    assert not new
    assert again == first


async def test_a_session_that_many_tasks_create_at_once_is_created_once(database: Database, another: Database) -> None:
    creations = [
        (database, another)[number % 2].write(sessions.create, "hf-1", OPENED, at=number) for number in range(40)
    ]
    made = await asyncio.gather(*creations)

    assert [new for _, new in made].count(True) == 1
    assert {session for session, _ in made} == {await database.read(sessions.get, "hf-1")}


@pytest.mark.process
async def test_a_session_that_two_processes_create_at_once_is_created_once(database: Database, spawn: Spawn) -> None:
    children = await asyncio.gather(*(spawn("create", "hf-1", at) for at in (1, 2, 3)))
    made = await asyncio.gather(*(child.go() for child in children))

    session = await database.read(sessions.get, "hf-1")
    assert sorted(new for *_, new in made) == [False, False, True]
    assert {tuple(facts) for *facts, _ in made} == {(session.id, session.seq, session.hash)}
    assert len(await database.read(log.read_complete, session)) == 1


async def test_an_unknown_session_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound, match="hf-nobody"):
        await database.read(sessions.get, "hf-nobody")
    for change in (sessions.end, fork_session):
        with pytest.raises(NotFound, match="hf-nobody"):
            await database.write(change, "hf-nobody", "user", at=1)
    with pytest.raises(NotFound, match="hf-nobody"):
        await database.write(sessions.rename, "hf-nobody", "title", at=1)


# titles


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("Plans", "Plans"),
        ("  Plans for\n\n\tMay \r\n", "Plans for May"),
        ("bell\x07 escape\x1b[31m nul\0 end", "bell escape [31m nul end"),
        ("x" * 10_000, "x" * TITLE_LENGTH),
        ("👩\u200d🔬 and 🏳️\u200d🌈", "👩\u200d🔬 and 🏳️\u200d🌈"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u202eevil\u202c שלום", "evil שלום"),
        ("日本語の計画", "日本語の計画"),
        ("half a \ud83d letter", "half a letter"),
        ("\U0001faea newer than this Python", "\U0001faea newer than this Python"),
        ("'; DROP TABLE session; --", "'; DROP TABLE session; --"),
    ],
)
async def test_a_title_is_kept_as_one_visible_line_and_found_again(
    database: Database, session: Session, given: str, kept: str
) -> None:
    renamed = await database.write(sessions.rename, session.id, given, at=session.summary.updated_at)

    assert renamed.summary.title == kept
    assert (await database.read(sessions.get, session.id)).summary.title == kept
    assert (await database.read(sessions.resolve, kept)).session.id == session.id


@pytest.mark.parametrize("typed", ["  Plans for  May", "Plans for May\n", "y" * 300])
async def test_a_session_is_found_by_the_title_as_it_was_typed(
    database: Database, session: Session, typed: str
) -> None:
    await database.write(sessions.rename, session.id, typed, at=1)

    assert (await database.read(sessions.resolve, typed)).session.id == session.id


@pytest.mark.parametrize("title", ["", "   ", "\n\t\r", "\0\x1b", "\ud83d", "\u200d", "\u202e"])
async def test_an_invisible_title_is_refused(database: Database, session: Session, title: str) -> None:
    with pytest.raises(Invalid, match="visible"):
        await database.write(sessions.rename, session.id, title, at=1)

    assert await database.read(sessions.get, session.id) == session


@pytest.mark.parametrize("title", ["two\nlines", "\ud83d\0", ""])
async def test_a_title_of_a_new_session_is_one_line_too(database: Database, title: str) -> None:
    session, _ = await database.write(sessions.create, "hf-1", SessionOpened(source="import", title=title), at=1)

    assert session.summary.title in ("two lines", None)
    assert [entry.event.title for entry in await database.read(log.read_complete, session)] == [title], (
        "the log keeps all"
    )


# pins


async def test_pinning_twice_counts_once(database: Database, session: Session) -> None:
    pinned = await database.write(sessions.pin, session.id, pinned=True, at=1)
    again = await database.write(sessions.pin, session.id, pinned=True, at=2)

    assert (pinned.summary.pinned, pinned.seq) == (1, 2)
    assert again == pinned


async def test_unpinning_a_session_that_is_not_pinned_adds_nothing(database: Database, session: Session) -> None:
    assert await database.write(sessions.pin, session.id, pinned=False, at=2) == session

    await database.write(sessions.pin, session.id, pinned=True, at=2)
    unpinned = await database.write(sessions.pin, session.id, pinned=False, at=3)
    assert (unpinned.summary.pinned, unpinned.seq) == (0, 3)


# ends


async def test_the_first_end_reason_stays(database: Database, session: Session, clock: FakeClock) -> None:
    ended = await database.write(sessions.end, session.id, "idle", at=clock.now(), detail="2 hours")
    again = await database.write(sessions.end, session.id, "user", at=clock.now() + 1)

    assert (ended.state, ended.summary.end_reason, ended.summary.ended_at) == ("ended", "idle", clock.now())
    assert again == await database.read(sessions.get, session.id) == ended


async def test_a_held_session_is_neither_ended_nor_trashed(database: Database, session: Session, worker: str) -> None:
    await database.write(leases.take, session.id, worker)

    with pytest.raises(Busy, match=worker):
        await database.write(sessions.trash, session.id, at=1)
    with pytest.raises(Busy, match=worker):
        await database.write(sessions.end, session.id, "user", at=1)

    assert (await database.read(sessions.get, session.id)).seq == session.seq


async def test_ending_during_a_turn_closes_the_turn_and_its_calls(
    database: Database, session: Session, worker: str
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, whole_turn()[:4], at=1)
    await database.write(leases.release, lease)
    ended = await database.write(sessions.end, session.id, "user", at=2)
    entries = await database.read(log.read_complete, ended)

    assert is_well_formed(entries)
    assert entries[-1].event == Ended(reason="user")
    assert ended.summary.open_turn is None


async def test_a_reopened_session_has_all_its_messages(database: Database, session: Session, worker: str) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, whole_turn(), at=1)
    await database.write(leases.release, lease)
    before = messages(await database.read(log.read, session.id))
    await database.write(sessions.end, session.id, "reaped", at=2)
    reopened = await database.write(sessions.reopen, session.id, at=3, reason="asked for")

    entries = await database.read(log.read_complete, reopened)
    assert messages(entries) == before
    assert entries[-1].event == Reopened(reason="asked for", by_person=True)
    assert (reopened.state, reopened.summary.ended_at, reopened.summary.end_reason) == ("waiting", None, None)


async def test_reopening_an_open_session_adds_nothing(database: Database, session: Session) -> None:
    assert await database.write(sessions.reopen, session.id, at=2) == session


async def test_reopening_ends_a_quarantine(database: Database, session: Session, worker: str) -> None:
    lease = await database.write(leases.take, session.id, worker)
    events = [TurnStarted(turn_id="turn-1"), user("hello"), Quarantined(reason="three attempts", turn_id="turn-1")]
    await database.write(log.append, lease, events, at=1)
    await database.write(leases.release, lease)
    locked = await database.read(sessions.get, session.id)
    reopened = await database.write(sessions.reopen, session.id, at=2)

    assert (locked.state, locked.summary.quarantined) == ("quarantined", "three attempts")
    assert reopened.state == "interrupted"


# trash


async def test_promise_23_a_session_in_the_trash_keeps_everything_and_is_restored_completely(
    database: Database, session: Session, clock: FakeClock
) -> None:
    trashed = await database.write(sessions.trash, session.id, at=clock.now(), reason="clutter")
    again = await database.write(sessions.trash, session.id, at=clock.now() + 1)
    restored = await database.write(sessions.restore, session.id, at=clock.now() + 2)

    assert trashed.summary.trashed_at == clock.now()
    assert again == trashed
    assert restored.summary.trashed_at is None
    assert [entry.kind for entry in await database.read(log.read_complete, restored)] == [
        *("session_opened", "trashed", "restored")
    ]


async def test_restoring_a_session_that_is_not_in_the_trash_adds_nothing(database: Database, session: Session) -> None:
    assert await database.write(sessions.restore, session.id, at=2) == session


async def test_pruning_removes_exactly_what_the_preview_showed(
    database: Database, new_session: NewSession, worker: str, clock: FakeClock
) -> None:
    fresh, kept, old, pinned, held, restored = [await new_session(title=f"session {n}") for n in range(6)]
    for session in (old, pinned, held, restored):
        await database.write(sessions.trash, session.id, at=clock.now())
    await database.write(sessions.pin, pinned.id, pinned=True, at=clock.now())
    await database.write(leases.take, held.id, worker)
    await database.write(sessions.restore, restored.id, at=clock.now())
    clock.pass_seconds(100)
    limit = clock.now()
    await database.write(sessions.trash, fresh.id, at=limit)
    shown = await database.read(session_pruning.list_prunable, before=limit)

    everybody = [fresh, kept, old, pinned, held, restored]
    removed = {one.id for one in everybody if await database.write(session_pruning.prune, one.id, before=limit)}

    assert removed == {one.id for one in shown} == {old.id}
    assert shown[0].title == "session 2"
    for session in everybody:
        if session is not old:
            now = await database.read(sessions.get, session.id)
            assert len(await database.read(log.read_complete, now)) == now.seq
    assert await database.read(session_pruning.list_prunable, before=limit) == []


async def test_a_session_that_was_restored_between_preview_and_prune_stays(
    database: Database, session: Session
) -> None:
    await database.write(sessions.trash, session.id, at=1)
    assert [one.id for one in await database.read(session_pruning.list_prunable, before=5)] == [session.id]
    await database.write(sessions.restore, session.id, at=2)

    assert not await database.write(session_pruning.prune, session.id, before=5)
    assert (await database.read(sessions.get, session.id)).seq == 3


async def test_pruning_deletes_everything_of_the_session_and_nothing_of_any_other(
    database: Database, new_session: NewSession, new_worker: NewWorker, ids: Ids
) -> None:
    gone, stays = await new_session(channel="api:gone"), await new_session(channel="api:stays")
    worker = await new_worker()
    for session in (gone, stays):
        lease = await database.write(leases.take, session.id, worker)
        await database.write(log.append, lease, whole_turn(), at=1)
        await database.write(log.save_draft, lease, log.ReplyDraft("turn-2", "half a", 1))
        await database.write(leases.release, lease)
        await database.write(aliases.add, f"old-{session.id}", session.id, at=1)
        await database.write(aliases.set_channel_session, session.summary.channel, session.id, at=1)
        await database.write(idempotency.claim, session.id, "me", "key", request="r", turn_id="turn-1", at=1)
        await database.write(input_queue.put, session.id, input_queue.Input("turn-3", "queue", user("later")), at=1)
        await database.write(approvals.ask, session.id, "turn-1", "call-1", "May I?", at=1)
    fork = await database.write(fork_session, gone.id, ids.make(SESSION), at=1)
    await database.write(sessions.trash, gone.id, at=1)

    assert await database.write(session_pruning.prune, gone.id, before=2)
    assert not await database.write(session_pruning.prune, gone.id, before=2)

    with pytest.raises(NotFound):
        await database.read(sessions.get, gone.id)
    assert await database.read(log.read, gone.id) == []
    assert await database.read(log.get_draft, gone.id) is None
    assert await database.read(aliases.find, f"old-{gone.id}") is None
    assert await database.read(aliases.get_channel_session, "api:gone") is None
    assert [await database.read(input_queue.list_waiting, one.id) for one in (gone, stays)] == [
        [],
        [input_queue.Input("turn-3", "queue", user("later"))],
    ]
    assert [len(await database.read(approvals.list_unanswered, one.id)) for one in (gone, stays)] == [0, 1]
    for other in (stays, fork):
        now = await database.read(sessions.get, other.id)
        assert len(await database.read(log.read_complete, now)) == now.seq
    assert await database.read(log.get_draft, stays.id) == log.ReplyDraft("turn-2", "half a", 1)
    assert await database.read(aliases.get_channel_session, "api:stays") == stays.id
    assert (
        await database.write(idempotency.claim, stays.id, "me", "key", request="r", turn_id="turn-9", at=1) == "turn-1"
    )


# the summary


async def test_an_empty_draft_leaves_no_message_when_its_session_is_ended(
    database: Database, session: Session, worker: str
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, [TurnStarted(turn_id="turn-1"), user("Hello", "turn-1")], at=1)
    waits = log.ReplyDraft("turn-1", "", 1, "the provider is busy; retrying in 5 s (2/5)")
    await database.write(log.save_draft, lease, waits)
    assert await database.read(log.get_draft, session.id) == waits
    await database.write(leases.release, lease)

    ended = await database.write(sessions.end, session.id, "user", at=2)

    assert [said.role for said in messages(await database.read(log.read_complete, ended))] == ["user"]


async def test_a_directory_is_used_by_the_sessions_of_its_channel_and_by_those_opened_in_it(
    database: Database, clock: FakeClock
) -> None:
    opened = SessionOpened(source="gateway", channel="telegram:42", workdir="/home/me/work/hf-7/sub")
    await database.write(sessions.create, "hf-1", opened, at=clock.now())
    await database.write(sessions.trash, "hf-1", at=clock.now())

    async def is_used(path: str, channel: str | None = None) -> bool:
        return await database.read(session_pruning.uses_directory, path, channel)

    assert await is_used("/work/telegram_42-1", "telegram:42")
    assert not await is_used("/work/telegram_43-1", "telegram:43")
    assert await is_used("/work/hf-7")
    assert not await is_used("/work/hf-8")


async def test_a_clock_that_goes_backwards_leaves_the_last_activity(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    clock.pass_seconds(100)
    after = await database.write(log.append, lease, [user("now")], at=clock.now())
    latest = clock.now()
    clock.set_by(-3_600)
    back = await database.write(log.append, lease, [user("an hour ago")], at=clock.now())
    renamed = await database.write(sessions.rename, session.id, "title", at=clock.now())

    assert after.summary.updated_at == back.summary.updated_at == renamed.summary.updated_at == latest
    assert [entry.at for entry in await database.read(log.read_complete, renamed)][2:] == [clock.now()] * 2


async def test_counts_and_messages_come_from_the_same_log(database: Database, session: Session, worker: str) -> None:
    lease = await database.write(leases.take, session.id, worker)
    for number in range(3):
        await database.write(log.append, lease, whole_turn(f"turn-{number}"), at=number)
    now = await database.read(sessions.get, session.id)
    entries = await database.read(log.read_complete, now)

    assert now.summary.message_count == len(messages(entries)) == 15
    assert (now.summary.turn_count, now.summary.tokens_in, now.summary.tokens_out) == (3, 54, 54)
    assert now.summary.preview == "Which files are there?"


async def test_the_summary_is_derived_from_the_log(database: Database, session: Session, worker: str) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, [*whole_turn(), TurnStarted(turn_id="turn-2"), user("more")], at=3)
    await database.write(sessions.rename, session.id, "title", at=4)
    await database.write(sessions.pin, session.id, pinned=True, at=5)
    before = await database.read(sessions.get, session.id)
    entries = await database.read(log.read_complete, before)

    assert summarise(entries) == before.summary


async def test_a_session_is_running_while_held_during_a_turn_and_interrupted_when_its_worker_is_gone(
    database: Database, session: Session, worker: str
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    assert (await database.read(sessions.get, session.id)).state == "waiting"
    running = await database.write(log.append, lease, [TurnStarted(turn_id="turn-1"), user("go")], at=1)
    await database.write(leases.release, lease)

    assert running.state == "running"
    assert (await database.read(sessions.get, session.id)).state == "interrupted"
    lease = await database.write(leases.take, session.id, worker)
    done = await database.write(log.append, lease, whole_turn()[-2:], at=2)
    assert done.state == "waiting"


async def test_a_message_of_the_model_is_not_a_preview(database: Database, session: Session, worker: str) -> None:
    lease = await database.write(leases.take, session.id, worker)
    greeted = await database.write(log.append, lease, [model("Good morning")], at=1)

    assert greeted.summary.preview == ""
