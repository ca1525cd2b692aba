"""Forks: separate sessions that share the beginning of their parent's log, hashes included."""

import itertools

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.event import Forked, ModelSaid, SessionOpened, ToolEnded, TurnEnded, TurnStarted
from holdfast.model.session import Session, messages
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions
from tests.contract.logs import is_well_formed, model, user, whole_turn
from tests.fakes.clock import FakeClock
from tests.fakes.forks import fork_session

LENGTH = 1 + 2 * len(whole_turn())


@pytest.fixture
async def parent(database: Database, worker: str, clock: FakeClock) -> Session:
    """A session with two complete turns."""
    opened = SessionOpened(source="chat", title="Plans", channel="cli:tty1", model="scripted:echo")
    session, _ = await database.write(sessions.create, "hf-parent", opened, at=clock.now())
    lease = await database.write(leases.take, session.id, worker)
    for turn_id in ("turn-1", "turn-2"):
        clock.pass_seconds(1)
        await database.write(log.append, lease, whole_turn(turn_id), at=clock.now())
    await database.write(leases.release, lease)
    return await database.read(sessions.get, session.id)


async def test_a_fork_at_the_head_has_the_whole_log_and_leaves_the_parent_alone(
    database: Database, parent: Session, clock: FakeClock
) -> None:
    clock.pass_seconds(1)
    fork = await database.write(fork_session, parent.id, "hf-fork", at=clock.now(), source="api")
    theirs, ours = await database.read(log.read_complete, parent), await database.read(log.read_complete, fork)

    assert ours[:-1] == theirs
    assert ours[-1].event == Forked(parent_id=parent.id, at_seq=parent.seq, at_hash=parent.hash, source="api")
    assert await database.read(sessions.get, parent.id) == parent
    assert fork == await database.read(sessions.get, "hf-fork")


async def test_a_fork_is_an_independent_session_with_the_messages_of_its_parent(
    database: Database, parent: Session, clock: FakeClock
) -> None:
    await database.write(sessions.pin, parent.id, pinned=True, at=clock.now())
    await database.write(sessions.end, parent.id, "user", at=clock.now())
    await database.write(sessions.trash, parent.id, at=clock.now())
    clock.pass_seconds(1)
    fork = await database.write(fork_session, parent.id, "hf-fork", at=clock.now())

    assert (fork.summary.parent_id, fork.summary.title, fork.summary.model) == (parent.id, "Plans", "scripted:echo")
    assert (fork.summary.message_count, fork.summary.turn_count) == (10, 2)
    assert (fork.summary.created_at, fork.summary.source) == (clock.now(), "chat")
    assert (fork.state, fork.summary.pinned, fork.summary.trashed_at) == ("waiting", 0, None)
    assert fork.summary.channel is None, "a channel has one session, and it is the parent"


@pytest.mark.parametrize("at_seq", range(1, LENGTH + 1))
async def test_a_fork_at_any_event_is_well_formed_and_verifies(
    database: Database, parent: Session, clock: FakeClock, at_seq: int
) -> None:
    fork = await database.write(fork_session, parent.id, "hf-fork", at=clock.now(), at_seq=at_seq)
    theirs, ours = await database.read(log.read_complete, parent), await database.read(log.read_complete, fork)

    assert ours[:at_seq] == theirs[:at_seq], "the shared part is the parent's, hashes included"
    assert ours[at_seq].event == Forked(parent_id=parent.id, at_seq=at_seq, at_hash=theirs[at_seq - 1].hash)
    assert is_well_formed(ours)
    assert (fork.summary.open_turn, fork.state) == (None, "waiting")
    assert fork.summary.message_count == len(messages(ours))


async def test_open_calls_are_closed_with_what_is_known_about_them(database: Database, parent: Session) -> None:
    asked = 4
    fork = await database.write(fork_session, parent.id, "hf-fork", at=9, at_seq=asked + 1)
    _, first, second, ended = (await database.read(log.read_complete, fork))[asked + 1 :]

    assert isinstance(first.event, ToolEnded)
    assert (first.event.call_id, first.event.outcome) == ("turn-1-a", "unknown"), "it was started"
    assert isinstance(second.event, ToolEnded)
    assert (second.event.call_id, second.event.outcome) == ("turn-1-b", "failed"), "it never was"
    assert isinstance(ended.event, TurnEnded)
    assert ended.event.turn_id == "turn-1"


async def test_a_fork_at_a_finished_reply_ends_its_turn_as_done(database: Database, parent: Session) -> None:
    log_of_parent = await database.read(log.read_complete, parent)
    replies = [
        entry.seq
        for entry, after in itertools.pairwise(log_of_parent)
        if isinstance(entry.event, ModelSaid) and isinstance(after.event, TurnEnded)
    ]
    for place, at_seq in enumerate(replies):
        fork = await database.write(fork_session, parent.id, f"hf-fork-{place}", at=9, at_seq=at_seq)
        ended = (await database.read(log.read_complete, fork))[-1].event

        assert isinstance(ended, TurnEnded)
        assert (ended.outcome, ended.code) == ("done", "forked")
    assert replies


async def test_a_fork_during_a_turn_says_that_it_was_forked_there(database: Database, parent: Session) -> None:
    fork = await database.write(fork_session, parent.id, "hf-fork", at=9, at_seq=5)
    ended = (await database.read(log.read_complete, fork))[-1].event

    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.code) == ("cancelled", "forked")


async def test_a_fork_can_be_continued_at_once(database: Database, parent: Session, worker: str) -> None:
    fork = await database.write(fork_session, parent.id, "hf-fork", at=9, at_seq=5)
    lease = await database.write(leases.take, fork.id, worker)
    after = await database.write(
        log.append,
        lease,
        [TurnStarted(turn_id="turn-9"), user("go on", "turn-9"), model("yes", turn_id="turn-9")],
        at=9,
    )
    entries = await database.read(log.read_complete, after)

    assert isinstance(entries[-1].event, ModelSaid)
    assert is_well_formed(entries)


async def test_a_fork_of_a_fork_shares_both_their_logs(database: Database, parent: Session, clock: FakeClock) -> None:
    child = await database.write(fork_session, parent.id, "hf-child", at=clock.now(), at_seq=5)
    grandchild = await database.write(fork_session, child.id, "hf-grandchild", at=clock.now())
    early = await database.write(fork_session, child.id, "hf-early", at=clock.now(), at_seq=3)

    chains = {
        one.id: [entry.hash for entry in await database.read(log.read_complete, one)]
        for one in (parent, child, grandchild, early)
    }
    assert chains["hf-grandchild"][: child.seq] == chains["hf-child"]
    assert chains["hf-early"][:3] == chains["hf-parent"][:3]
    assert grandchild.summary.parent_id == child.id


async def test_messages_of_a_fork_are_not_in_its_parent_and_vice_versa(
    database: Database, parent: Session, worker: str
) -> None:
    fork = await database.write(fork_session, parent.id, "hf-fork", at=9)
    for session, text in ((parent, "parent only"), (fork, "fork only")):
        lease = await database.write(leases.take, session.id, worker)
        await database.write(log.append, lease, [user(text)], at=9)

    for session, other in ((parent, "fork only"), (fork, "parent only")):
        now = await database.read(sessions.get, session.id)
        assert other not in [message.text for message in messages(await database.read(log.read_complete, now))]


@pytest.mark.parametrize("at_seq", [0, -1, LENGTH + 1, 2**40])
async def test_a_fork_outside_the_log_is_refused(database: Database, parent: Session, at_seq: int) -> None:
    with pytest.raises(Invalid, match=f"1 to {LENGTH}"):
        await database.write(fork_session, parent.id, "hf-fork", at=9, at_seq=at_seq)


async def test_a_fork_never_replaces_an_existing_session(database: Database, parent: Session) -> None:
    with pytest.raises(Invalid, match="already exists"):
        await database.write(fork_session, parent.id, parent.id, at=9, at_seq=1)

    assert await database.read(sessions.get, parent.id) == parent


async def test_a_held_session_can_be_forked(database: Database, parent: Session, worker: str) -> None:
    lease = await database.write(leases.take, parent.id, worker)
    await database.write(log.append, lease, whole_turn("turn-3")[:4], at=9)
    fork = await database.write(fork_session, parent.id, "hf-fork", at=9)

    assert fork.lease_worker is None
    assert is_well_formed(await database.read(log.read_complete, fork))
    assert (await database.read(sessions.get, parent.id)).state == "running"
