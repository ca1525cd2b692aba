"""Forks: a session of its own that shares the beginning of its parent's log, hashes included."""

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.event import Forked, ModelSaid, SessionOpened, ToolEnded, TurnEnded, TurnStarted
from holdfast.model.session import Session, messages
from holdfast.store import leases, log, sessions
from holdfast.store.database import Database
from tests.contract.logs import is_well_formed, model, user, whole_turn
from tests.fakes.clock import FakeClock

LENGTH = 1 + 2 * len(whole_turn())


@pytest.fixture
async def parent(database: Database, worker: str, clock: FakeClock) -> Session:
    """A session with two whole turns."""
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
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=clock.now(), source="api")
    theirs, ours = await database.read(log.read_whole, parent), await database.read(log.read_whole, fork)

    assert ours[:-1] == theirs
    assert ours[-1].event == Forked(parent_id=parent.id, at_seq=parent.seq, at_hash=parent.hash, source="api")
    assert await database.read(sessions.get, parent.id) == parent
    assert fork == await database.read(sessions.get, "hf-fork")


async def test_a_fork_starts_a_life_of_its_own_with_the_words_of_its_parent(
    database: Database, parent: Session, clock: FakeClock
) -> None:
    await database.write(sessions.pin, parent.id, pinned=True, at=clock.now())
    await database.write(sessions.end, parent.id, "user", at=clock.now())
    await database.write(sessions.trash, parent.id, at=clock.now())
    clock.pass_seconds(1)
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=clock.now())

    assert (fork.summary.parent_id, fork.summary.title, fork.summary.model) == (parent.id, "Plans", "scripted:echo")
    assert (fork.summary.message_count, fork.summary.turn_count) == (10, 2)
    assert (fork.summary.created_at, fork.summary.source) == (clock.now(), "chat")
    assert (fork.state, fork.summary.pinned, fork.summary.trashed_at) == ("waiting", 0, None)
    assert fork.summary.channel is None, "a channel has one session, and it is the parent"


@pytest.mark.parametrize("at_seq", range(1, LENGTH + 1))
async def test_a_fork_anywhere_is_well_formed_and_proves_itself(
    database: Database, parent: Session, clock: FakeClock, at_seq: int
) -> None:
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=clock.now(), at_seq=at_seq)
    theirs, ours = await database.read(log.read_whole, parent), await database.read(log.read_whole, fork)

    assert ours[:at_seq] == theirs[:at_seq], "the shared part is the parent's, hashes included"
    assert ours[at_seq].event == Forked(parent_id=parent.id, at_seq=at_seq, at_hash=theirs[at_seq - 1].hash)
    assert is_well_formed(ours)
    assert (fork.summary.open_turn, fork.state) == (None, "waiting")
    assert fork.summary.message_count == len(messages(ours))


async def test_calls_that_were_open_are_closed_by_what_is_known_of_them(database: Database, parent: Session) -> None:
    asked = 4
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=9, at_seq=asked + 1)
    _, first, second, ended = (await database.read(log.read_whole, fork))[asked + 1 :]

    assert isinstance(first.event, ToolEnded)
    assert (first.event.call_id, first.event.outcome) == ("turn-1-a", "unknown"), "it was started"
    assert isinstance(second.event, ToolEnded)
    assert (second.event.call_id, second.event.outcome) == ("turn-1-b", "failed"), "it never was"
    assert isinstance(ended.event, TurnEnded)
    assert ended.event.turn_id == "turn-1"


async def test_a_fork_can_be_continued_at_once(database: Database, parent: Session, worker: str) -> None:
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=9, at_seq=5)
    lease = await database.write(leases.take, fork.id, worker)
    after = await database.write(
        log.append,
        lease,
        [TurnStarted(turn_id="turn-9"), user("go on", "turn-9"), model("yes", turn_id="turn-9")],
        at=9,
    )
    entries = await database.read(log.read_whole, after)

    assert isinstance(entries[-1].event, ModelSaid)
    assert is_well_formed(entries)


async def test_a_fork_of_a_fork_shares_both_their_logs(database: Database, parent: Session, clock: FakeClock) -> None:
    child = await database.write(sessions.fork, parent.id, "hf-child", at=clock.now(), at_seq=5)
    grandchild = await database.write(sessions.fork, child.id, "hf-grandchild", at=clock.now())
    early = await database.write(sessions.fork, child.id, "hf-early", at=clock.now(), at_seq=3)

    chains = {
        one.id: [entry.hash for entry in await database.read(log.read_whole, one)]
        for one in (parent, child, grandchild, early)
    }
    assert chains["hf-grandchild"][: child.seq] == chains["hf-child"]
    assert chains["hf-early"][:3] == chains["hf-parent"][:3]
    assert grandchild.summary.parent_id == child.id


async def test_what_the_fork_says_is_not_in_the_parent_and_the_other_way_round(
    database: Database, parent: Session, worker: str
) -> None:
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=9)
    for session, text in ((parent, "parent only"), (fork, "fork only")):
        lease = await database.write(leases.take, session.id, worker)
        await database.write(log.append, lease, [user(text)], at=9)

    for session, other in ((parent, "fork only"), (fork, "parent only")):
        now = await database.read(sessions.get, session.id)
        assert other not in [message.text for message in messages(await database.read(log.read_whole, now))]


@pytest.mark.parametrize("at_seq", [0, -1, LENGTH + 1, 2**40])
async def test_a_fork_outside_the_log_is_refused(database: Database, parent: Session, at_seq: int) -> None:
    with pytest.raises(Invalid, match=f"1 to {LENGTH}"):
        await database.write(sessions.fork, parent.id, "hf-fork", at=9, at_seq=at_seq)


async def test_a_fork_never_takes_the_place_of_a_session_that_exists(database: Database, parent: Session) -> None:
    with pytest.raises(Invalid, match="exists already"):
        await database.write(sessions.fork, parent.id, parent.id, at=9, at_seq=1)

    assert await database.read(sessions.get, parent.id) == parent


async def test_a_session_that_somebody_holds_can_be_forked(database: Database, parent: Session, worker: str) -> None:
    lease = await database.write(leases.take, parent.id, worker)
    await database.write(log.append, lease, whole_turn("turn-3")[:4], at=9)
    fork = await database.write(sessions.fork, parent.id, "hf-fork", at=9)

    assert fork.lease_worker is None
    assert is_well_formed(await database.read(log.read_whole, fork))
    assert (await database.read(sessions.get, parent.id)).state == "running"
