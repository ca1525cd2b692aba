"""A reset takes place when it is due and cuts nobody off; it is one step, told, and can be undone."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from holdfast.engine.calendar import Policies, Policy
from holdfast.engine.reset import Resets
from holdfast.identity import identity
from holdfast.model.errors import Busy, Invalid, NotFound, Unavailable
from holdfast.model.event import (
    Ended,
    ProcessesLeft,
    ProcessesReceived,
    Renewed,
    Reopened,
    ResetSkipped,
    SessionOpened,
)
from holdfast.model.times import micros
from holdfast.processes.folder import Folder
from holdfast.processes.registry import Limits, Registry
from holdfast.providers.scripted import Call, Step
from holdfast.store import aliases, approvals, outbox, platforms, processes, resets, sessions
from tests.crash.programs import wait_until
from tests.engine.stage import set_up
from tests.fakes.clock import FakeClock

HOUR = 3600.0
MINUTE = 60.0
IDLE = 120


def policies(mode: str = "idle", **channels: Policy) -> Policies:
    from zoneinfo import ZoneInfo

    return Policies(Policy(mode, IDLE, 6, ZoneInfo("UTC")), channels)  # type: ignore[arg-type]


class Bench:
    """A worker with processes and resets, and time in the test's own hand."""

    def __init__(self, stage, clock, registry) -> None:
        self.stage, self.clock, self.registry = stage, clock, registry
        self.engine, self.database = stage.engine, stage.database

    def policy(self, mode: str, on_reset: str = "warn", **channels: Policy) -> Resets:
        self.engine.resets = Resets(
            self.engine.ground,
            policies(mode, **channels),
            self.registry,
            on_reset=on_reset,  # type: ignore[arg-type]
            home="home:1",
        )
        return self.engine.resets

    async def spoken(self, channel: str | None = "telegram:1", **opening) -> str:
        """A session in which something was just said; its id."""
        session = await self.stage.session(channel=channel, source=opening.pop("source", "gateway"), **opening)
        await self.stage.play(session.id, "Hello")
        return session.id

    async def told(self, platform: str) -> list[tuple[str | None, str]]:
        """What waits to be delivered there: of each chat the first."""
        return [(one.session_id, one.message.text) for one in await self.database.read(outbox.heads, platform)]

    async def current(self, channel: str = "telegram:1") -> str:
        return await self.database.read(aliases.current, channel)

    async def events(self, session_id: str, kind) -> list:
        return [event for event in await self.stage.log(session_id) if isinstance(event, kind)]

    async def start(self, command: str, session_id: str, workdir: Path):
        return await self.registry.start(command, workdir, session_id)


@pytest.fixture
async def bench(tmp_path, stages):
    from datetime import UTC, datetime

    clock = FakeClock(micros(datetime(2026, 5, 18, 12, tzinfo=UTC)))
    stage = await set_up(tmp_path, *[Step(say="Yes.")] * 20, clock=clock)
    stages.append(stage)
    limits = Limits(ttl_seconds=int(48 * HOUR), output_bytes=1 << 20)
    await stage.database.write(platforms.take, "telegram", stage.engine.ground.worker_id, at=clock.now())
    registry = Registry(stage.database, clock, identity(), tmp_path, {"PATH": os.environ["PATH"]}, limits)
    yield Bench(stage, clock, registry)
    for process in await stage.database.read(processes.live):
        await registry.stop(process, "the test is over", grace_seconds=0)


async def test_where_nothing_is_ever_reset_nothing_is_looked_up(bench):
    resets = bench.policy("none", telegram=policies("idle").default)
    old = await bench.spoken("telegram:1")
    bench.clock.pass_seconds(IDLE * MINUTE)

    assert (resets.ever("telegram:1"), resets.ever("key:1")) == (True, False)
    assert await bench.engine.freshen_channel("telegram:1") is True
    assert await bench.current("telegram:1") != old

    with pytest.raises(StopIteration) as at_once:  # it never had to wait for the store
        bench.engine.freshen_channel("key:1").send(None)
    assert at_once.value.value is False


# the reset itself


async def test_promise_15_an_idle_session_is_ended_with_a_reason_and_another_takes_its_place(bench, tmp_path):
    sweeper = bench.policy("idle")
    old = await bench.spoken(model="scripted:play", system="Be kind.", workdir=tmp_path)
    bench.clock.pass_seconds(IDLE * MINUTE)

    [deed] = await sweeper.sweep()

    new = await bench.current()
    assert (deed.what, deed.session_id) == ("reset", old)
    assert (await bench.events(old, Ended)) == [Ended(reason="session_reset", detail="nothing was said for 2 h")]
    opened, reset = await bench.stage.log(new)
    assert opened == SessionOpened(
        source="gateway", channel="telegram:1", model="scripted:play", system="Be kind.", workdir=str(tmp_path)
    )
    assert reset == Renewed(
        previous_id=old,
        rule="idle",
        reason="nothing was said for 2 h",
        notice=f"A new session began: nothing was said for 2 h. The one before is kept as {old}; "
        "/undo-reset goes on with it, for a day.",
    )
    assert await bench.told("telegram") == [(new, reset.notice)]


async def test_promise_15_the_notice_is_in_the_commit_of_the_reset(bench, monkeypatch):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)

    def broken(*given, **more):
        raise Unavailable("the notice could not be kept")

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "put", broken)
        with pytest.raises(Unavailable, match="the notice"):
            await sweeper.sweep()

    assert await bench.current() == old, "no reset that nobody is told of"
    assert await bench.events(old, Ended) == []
    await sweeper.sweep()
    assert [session for session, _ in await bench.told("telegram")] == [await bench.current()]


async def test_a_channel_that_is_no_chat_is_told_nothing(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken("api:key")
    bench.clock.pass_seconds(IDLE * MINUTE)

    await sweeper.sweep()

    assert await bench.current("api:key") != old
    assert await bench.told("api") == []


async def test_what_is_not_due_is_left_alone_and_a_reset_is_not_repeated(bench):
    sweeper = bench.policy("both")
    old = await bench.spoken()

    bench.clock.pass_seconds(IDLE * MINUTE - 1)
    early = await sweeper.sweep()
    bench.clock.pass_seconds(1)
    done = await sweeper.sweep()
    again = await sweeper.sweep()

    assert (early, [deed.session_id for deed in done], again) == ([], [old], [])


async def test_without_a_policy_nothing_is_ever_reset(bench):
    sweeper = bench.policy("none")
    old = await bench.spoken()
    bench.clock.pass_seconds(1000 * HOUR)

    assert await sweeper.sweep() == []
    assert (await bench.stage.session(channel="telegram:1", source="gateway")).id == old
    assert await bench.current() == old


async def test_each_channel_has_its_own_policy(bench):
    from zoneinfo import ZoneInfo

    sweeper = bench.policy("none", telegram=Policy("idle", 30, 6, ZoneInfo("UTC")))
    chatty, quiet = await bench.spoken("telegram:1"), await bench.spoken("matrix:1")
    bench.clock.pass_seconds(31 * MINUTE)

    await sweeper.sweep()

    assert await bench.current("telegram:1") != chatty
    assert await bench.current("matrix:1") == quiet


async def test_two_workers_at_once_make_one_reset(bench, tmp_path, stages):
    first = bench.policy("idle")
    other = await set_up(tmp_path, database=bench.database, clock=bench.clock)
    stages.append(other)
    second = Resets(other.engine.ground, policies("idle"), bench.registry)
    channels = [f"telegram:{number}" for number in range(20)]
    for channel in channels:
        await bench.spoken(channel)
    bench.clock.pass_seconds(IDLE * MINUTE)

    done = await asyncio.gather(first.sweep(), second.sweep())

    assert sum(deed.what == "reset" for deeds in done for deed in deeds) == 20
    page = await bench.database.read(sessions.list_page, sessions.EVERYTHING, limit=100)
    assert len(page.sessions) == 40


async def test_words_that_come_in_the_last_moment_win(bench):
    bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    stale = await bench.database.read(sessions.get, old)
    await bench.stage.play(old, "Wait!")

    with pytest.raises(Busy):
        await bench.database.write(
            resets.renew, stale, "hf-new", Renewed(previous_id=old, rule="idle"), at=bench.clock.now()
        )

    assert await bench.current() == old


async def test_what_is_written_beside_the_words_is_no_activity(bench):
    """A process that ends, a title or a skipped reset does not keep a session from its reset."""
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE - 60)
    await bench.database.write(sessions.rename, old, "A title", at=bench.clock.now())
    bench.clock.pass_seconds(60)

    assert [deed.what for deed in await sweeper.sweep()] == ["reset"]


# when it is next used


async def test_a_channel_that_is_spoken_to_after_the_hour_gets_its_new_session_without_any_sweep(bench):
    bench.policy("daily")
    old = await bench.spoken()
    bench.clock.pass_seconds(24 * HOUR)

    session = await bench.stage.session(channel="telegram:1", source="gateway")

    assert session.id != old
    assert (await bench.events(session.id, Renewed))[0].previous_id == old


async def test_an_api_session_that_was_ended_as_idle_is_reset_all_the_same(bench):
    bench.policy("idle")
    old = await bench.spoken("api:me", source="api")
    bench.clock.pass_seconds(61 * MINUTE)
    await bench.stage.janitor().sweep()
    ended = await bench.database.read(sessions.get, old)
    bench.clock.pass_seconds(60 * MINUTE)

    session = await bench.stage.session(channel="api:me")

    assert ended.summary.end_reason == "idle"
    assert session.id != old


async def test_a_session_that_somebody_has_open_is_reset_when_it_is_next_spoken_to(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken(None, source="chat", own=True)
    bench.clock.pass_seconds(IDLE * MINUTE)

    swept = await sweeper.sweep()
    new = await bench.engine.freshen(old)

    assert swept == []
    assert new.id != old
    assert new.owner_worker == bench.stage.worker_id
    assert (await bench.database.read(sessions.get, old)).owner_worker is None
    assert (await bench.events(old, Ended))[0].reason == "session_reset"


async def test_an_old_session_that_is_resumed_by_name_is_not_reset_under_ones_hands(bench):
    bench.policy("both")
    old = await bench.spoken(None, source="chat", own=True)
    await bench.engine.owned.leave(old)
    bench.clock.pass_seconds(1000 * HOUR)

    assert (await bench.stage.session(ref=old)).id == old
    assert (await bench.engine.freshen(old)).id == old


# what holds it back


async def test_a_turn_that_runs_is_never_cut_off(bench, tmp_path, stages):
    stage = await set_up(
        tmp_path, Step(call=(Call("sleep"),)), Step(say="Done."), database=bench.database, clock=bench.clock
    )
    stages.append(stage)
    sweeper = bench.policy("both")
    session = await stage.session(channel="telegram:9", source="gateway")
    await stage.engine.admit(session.id, "Sleep.")
    async with asyncio.timeout(10):
        await stage.sleeper.sleeping.wait()
    bench.clock.pass_seconds(30 * HOUR)

    first, second = await sweeper.sweep(), await sweeper.sweep()
    same = await bench.engine.freshen(session.id)

    assert [deed.what for deed in first] == ["reset skipped"]
    assert second == []
    assert same.id == session.id
    [skipped] = await bench.events(session.id, ResetSkipped)
    assert skipped.reason == "nothing was said for 30 h, but a turn is open"
    await stage.engine.interrupt(session.id)


async def test_a_question_that_is_open_is_not_cut_off(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    await bench.database.write(approvals.ask, old, "turn-1", "c1", "May I?", at=bench.clock.now())
    bench.clock.pass_seconds(IDLE * MINUTE)

    await sweeper.sweep()

    assert await bench.current() == old
    [skipped] = await bench.events(old, ResetSkipped)
    assert skipped.reason == "nothing was said for 2 h, but a question waits for an answer"


async def test_promise_15_a_skipped_reset_is_told_once_for_each_reason(bench, tmp_path, caplog):
    caplog.set_level(logging.INFO, "holdfast.engine.reset")
    sweeper = bench.policy("daily")
    old = await bench.spoken()
    one = await bench.start("while :; do echo one; sleep 0.02; done", old, tmp_path)
    bench.clock.pass_seconds(24 * HOUR)

    for _ in range(3):
        await sweeper.sweep()
    two = await bench.start("while :; do echo two; sleep 0.02; done", old, tmp_path)
    for _ in range(3):
        await sweeper.sweep()

    first, second = await bench.events(old, ResetSkipped)
    assert first.reason == "the daily reset of 06:00 (UTC), but 1 of its processes are at work"
    assert first.processes[0].startswith(f"{one.id} `while :; do echo one; sleep 0.02; done`: working, ")
    assert [line.split()[0] for line in second.processes] == [one.id, two.id]
    lines = [record for record in caplog.records if "was skipped" in record.message]
    assert [record.levelname for record in lines] == ["INFO", "INFO"]
    assert one.id in lines[0].message


async def test_work_past_its_time_to_live_holds_nothing_back(bench, tmp_path):
    sweeper = bench.policy("daily")
    old = await bench.spoken()
    await bench.start("while :; do echo tick; sleep 0.02; done", old, tmp_path)
    bench.clock.pass_seconds(49 * HOUR)

    await sweeper.sweep()

    assert await bench.current() != old
    assert "past its time to live of 2 d" in (await bench.told("home"))[0][1]


# the seed


@pytest.mark.parametrize("mode", ["idle", "daily"])
async def test_promise_15_forgotten_servers_hold_nobody_hostage_and_a_build_does_until_it_is_done(
    bench, tmp_path, mode
):
    """Two preview servers started and forgotten; a reset is due; beside them something is really being built."""
    sweeper = bench.policy(mode)
    old = await bench.spoken()
    servers = [
        await bench.start(f"exec {sys.executable} -u -m http.server 0 --bind 127.0.0.1", old, tmp_path) for _ in "ab"
    ]
    build = "until [ -e built ]; do echo compiling $((n++)).c; sleep 0.02; done; exit 0"
    build = await bench.start(build, old, tmp_path)
    await asyncio.to_thread(wait_until, lambda: _listening(bench.registry, servers) == 2, "both listen")
    await bench.registry.refresh()
    seen = _output(build)
    await asyncio.to_thread(wait_until, lambda: _output(build) > seen, "the build goes on")
    bench.clock.pass_seconds(20 * HOUR)

    held = await sweeper.sweep()
    (tmp_path / "built").touch()
    assert (await bench.registry.wait(build, 20)).exit_code == 0
    done = await sweeper.sweep()

    assert [deed.what for deed in held] == ["reset skipped"]
    [skipped] = await bench.events(old, ResetSkipped)
    assert [line.split()[0] for line in skipped.processes] == [build.id], "the servers are no reason"
    assert [deed.what for deed in done] == ["reset"]
    new = await bench.current()
    [reset] = await bench.events(new, Renewed)
    assert (reset.rule, set(reset.processes)) == (mode, {server.id for server in servers})
    for server in servers:
        assert f"{server.id} `exec {sys.executable} -u -m http.server 0 --bind 127.0.0.1` (listens on 127.0.0.1:" in (
            reset.notice
        )
    told = [text for _, text in await bench.told("home")]
    assert told == ([reset.notice] if mode == "daily" else []), "the home channel is told at the daily reset"
    assert len(await bench.registry.list()) == 2, "and they go on"


def _output(process) -> int:
    return Folder(Path(process.folder)).read(limit=1).total


def _listening(registry, servers) -> int:
    from holdfast.processes import scan

    machine, sockets = scan.look(), scan.Sockets()
    found = [machine.members(one.id, Folder(Path(one.folder)).leader, None) for one in servers]
    return sum(bool(sockets.of(members)) for members in found)


@pytest.mark.parametrize(("on_reset", "alive", "told"), [("stop", 0, 0), ("keep", 1, 0), ("warn", 1, 1)])
async def test_at_the_daily_reset_stale_processes_are_stopped_kept_or_reported(bench, tmp_path, on_reset, alive, told):
    sweeper = bench.policy("daily", on_reset)
    old = await bench.spoken()
    process = await bench.start("sleep 300", old, tmp_path)
    bench.clock.pass_seconds(24 * HOUR)

    await sweeper.sweep()

    assert await bench.current() != old
    assert (len(await bench.registry.list()), len(await bench.told("home"))) == (alive, told)
    after = await bench.database.read(processes.get, process.id)
    assert (after.end_reason or "").startswith("" if alive else f"ended at the reset of session {old}")
    word = "Ended with it" if on_reset == "stop" else "Still running from it"
    assert f"{word}: {process.id} `sleep 300` (no sign of work for 24 h" in (await bench.told("telegram"))[0][1]


# undo


async def test_promise_15_a_reset_can_be_undone_with_all_that_was_said(bench):
    sweeper = bench.policy("both")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    new = await bench.current()
    bench.clock.pass_seconds(23 * HOUR)

    back = await bench.engine.undo_reset(new)
    await bench.stage.play(old, "Where were we?")

    assert (back.id, await bench.current(), back.state) == (old, old, "waiting")
    assert (await bench.events(old, Reopened))[0].reason == f"the reset that began {new} was undone"
    assert (await bench.database.read(sessions.get, new)).summary.end_reason == "user"
    assert (await bench.database.read(sessions.get, old)).summary.message_count == 4
    assert await sweeper.sweep() == [], "it is not reset again at once"


async def test_what_is_undone_is_in_use_from_then_on(bench):
    sweeper = bench.policy("idle")
    await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    await bench.engine.undo_reset(await bench.current())

    early = await sweeper.sweep()
    bench.clock.pass_seconds(IDLE * MINUTE)
    late = await sweeper.sweep()

    assert early == []
    assert [deed.what for deed in late] == ["reset"]


async def test_a_reset_stands_after_a_day(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    bench.clock.pass_seconds(24 * HOUR + 1)

    with pytest.raises(Invalid, match=f"session before is {old}"):
        await bench.engine.undo_reset(await bench.current())


async def test_where_there_was_no_reset_there_is_nothing_to_undo(bench):
    bench.policy("idle")

    with pytest.raises(Invalid, match="nothing to undo"):
        await bench.engine.undo_reset(await bench.spoken())


async def test_a_session_in_the_trash_is_not_brought_back_by_undoing(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    await bench.database.write(sessions.trash, old, at=bench.clock.now())

    with pytest.raises(NotFound, match="trash"):
        await bench.engine.undo_reset(await bench.current())


# /new


@pytest.mark.parametrize("leaving", ["stop", "keep", "hand_over"])
async def test_a_person_who_begins_anew_says_what_becomes_of_the_processes(bench, tmp_path, leaving):
    bench.policy("none")
    old = await bench.spoken(None, source="chat", own=True)
    process = await bench.start("sleep 300", old, tmp_path)

    new = await bench.engine.begin_anew(old, leaving)

    after = await bench.registry.get(process.id)
    to = new.id if leaving == "hand_over" else ""
    assert await bench.events(old, ProcessesLeft) == [ProcessesLeft(processes=(process.id,), action=leaving, to=to)]
    assert (after.ended_at is None) == (leaving != "stop")
    assert after.session_id == (new.id if leaving == "hand_over" else old)
    received = [ProcessesReceived(processes=(process.id,), origin=old)] if leaving == "hand_over" else []
    assert await bench.events(new.id, ProcessesReceived) == received
    assert new.owner_worker == bench.stage.worker_id


async def test_beginning_anew_can_be_undone_too(bench):
    bench.policy("none")
    old = await bench.spoken()
    new = await bench.engine.begin_anew(old)

    assert (await bench.engine.undo_reset(new.id)).id == old
    assert await bench.current() == old
