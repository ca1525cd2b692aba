"""A reset takes place when it is due and interrupts nothing; it is one transaction, announced, and can be undone."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from holdfast.engine.reset.policy import ResetPolicies, ResetPolicy
from holdfast.engine.reset.reset import Resets
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
from holdfast.process_lookup import current_identity
from holdfast.processes.process_dir import ProcessDir
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import aliases, approvals, outbox, platforms, processes, resets, session_list, sessions
from tests.crash.programs import wait_until
from tests.engine.stage import set_up, with_resets
from tests.fakes.clock import FakeClock

HOUR = 3600.0
MINUTE = 60.0
IDLE = 120


def policies(mode: str = "idle", **channels: ResetPolicy) -> ResetPolicies:
    from zoneinfo import ZoneInfo

    return ResetPolicies(ResetPolicy(mode, IDLE, 6, ZoneInfo("UTC")), channels)  # type: ignore[arg-type]


class Bench:
    """A worker with processes and resets, and a fake clock."""

    def __init__(self, stage, clock, registry) -> None:
        self.stage, self.clock, self.registry = stage, clock, registry
        self.engine, self.database = stage.engine, stage.database

    def policy(self, mode: str, on_reset: str = "warn", **channels: ResetPolicy) -> Resets:
        self.engine = self.stage.engine = with_resets(
            self.engine, policies(mode, **channels), self.registry, on_reset=on_reset, home="home:1"
        )
        return self.engine.resets

    async def spoken(self, channel: str | None = "telegram:1", **opening) -> str:
        """The id of a session with a new message."""
        session = await self.stage.session(channel=channel, source=opening.pop("source", "gateway"), **opening)
        await self.stage.play(session.id, "Hello")
        return session.id

    async def told(self, platform: str) -> list[tuple[str | None, str]]:
        """The pending deliveries there: the first of each chat."""
        return [(one.session_id, one.message.text) for one in await self.database.read(outbox.list_heads, platform)]

    async def current(self, channel: str = "telegram:1") -> str:
        return await self.database.read(aliases.get_channel_session, channel)

    async def events(self, session_id: str, kind) -> list:
        return [event for event in await self.stage.log(session_id) if isinstance(event, kind)]

    async def start(self, command: str, session_id: str, workdir: Path):
        return await self.registry.start(command, workdir, session_id)

    async def start_talker(self, word: str, session_id: str, workdir: Path):
        """Start a process that writes the word again and again, and wait until it has done so once."""
        process = await self.start(f"while :; do echo {word}; sleep 0.02; done", session_id, workdir)
        await asyncio.to_thread(wait_until, lambda: _output(process) > 0, "it writes")
        return process


@pytest.fixture
async def bench(tmp_path, stages):
    from datetime import UTC, datetime

    clock = FakeClock(micros(datetime(2026, 5, 18, 12, tzinfo=UTC)))
    stage = await set_up(tmp_path, *[ScriptStep(say="Yes.")] * 20, clock=clock)
    stages.append(stage)
    limits = ProcessLimits(ttl_seconds=int(48 * HOUR), output_bytes=1 << 20)
    await stage.database.write(platforms.take, "telegram", stage.engine.services.worker_id, at=clock.now())
    registry = ProcessRegistry(
        stage.database, clock, current_identity(), tmp_path, {"PATH": os.environ["PATH"]}, limits
    )
    yield Bench(stage, clock, registry)
    for process in await stage.database.read(processes.list_live):
        await registry.stop(process, "the test is over", grace_seconds=0)


async def test_where_nothing_is_ever_reset_nothing_is_looked_up(bench):
    bench.policy("none", telegram=policies("idle").default)
    old = await bench.spoken("telegram:1")
    bench.clock.pass_seconds(IDLE * MINUTE)

    assert await bench.engine.resets.renew_channel_if_due("telegram:1") is True
    assert await bench.current("telegram:1") != old

    with pytest.raises(StopIteration) as at_once:  # it never had to wait for the store
        bench.engine.resets.renew_channel_if_due("key:1").send(None)
    assert at_once.value.value is False


# the reset itself


async def test_promise_15_an_idle_session_is_ended_with_a_reason_and_replaced(bench, tmp_path):
    sweeper = bench.policy("idle")
    old = await bench.spoken(model="scripted:play", system="Be kind.", workdir=tmp_path)
    bench.clock.pass_seconds(IDLE * MINUTE)

    [action] = await sweeper.sweep()

    new = await bench.current()
    assert (action.what, action.session_id) == ("reset", old)
    assert (await bench.events(old, Ended)) == [Ended(reason="session_reset", detail="no message for 2 h")]
    opened, reset = await bench.stage.log(new)
    assert opened == SessionOpened(
        source="gateway", channel="telegram:1", model="scripted:play", system="Be kind.", workdir=str(tmp_path)
    )
    assert reset == Renewed(
        previous_id=old,
        rule="idle",
        reason="no message for 2 h",
        notice=f"A new session started: no message for 2 h. The previous one is kept as {old}; "
        "/undo-reset returns to it within a day.",
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

    assert await bench.current() == old, "no reset without a notice"
    assert await bench.events(old, Ended) == []
    await sweeper.sweep()
    assert [session for session, _ in await bench.told("telegram")] == [await bench.current()]


async def test_a_channel_that_is_not_a_chat_gets_no_notice(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken("api:key")
    bench.clock.pass_seconds(IDLE * MINUTE)

    await sweeper.sweep()

    assert await bench.current("api:key") != old
    assert await bench.told("api") == []


async def test_a_session_that_is_not_due_is_left_unchanged_and_a_reset_is_not_repeated(bench):
    sweeper = bench.policy("both")
    old = await bench.spoken()

    bench.clock.pass_seconds(IDLE * MINUTE - 1)
    early = await sweeper.sweep()
    bench.clock.pass_seconds(1)
    done = await sweeper.sweep()
    again = await sweeper.sweep()

    assert (early, [action.session_id for action in done], again) == ([], [old], [])


@pytest.mark.parametrize("mode", ["idle", "daily", "both"])
async def test_a_silent_chat_gets_one_reset_and_undoing_it_leads_to_the_conversation(bench, mode):
    sweeper = bench.policy(mode)
    old = await bench.spoken()
    done = []
    for _ in range(10):
        bench.clock.pass_seconds(24 * HOUR)
        done += await sweeper.sweep()
    bench.clock.pass_seconds(24 * HOUR)
    session = await bench.database.read(sessions.get, await bench.current())
    await bench.engine.resets.renew_channel_if_due("telegram:1")

    assert [action.session_id for action in done] == [old]
    assert await bench.current() == session.id
    assert len(await bench.database.read(outbox.list_undelivered, 10)) == 0
    assert len(await bench.told("telegram")) == 1
    assert await sweeper.outlook(session) == ""
    await bench.stage.play(session.id, "Are you there?")
    bench.clock.pass_seconds(24 * HOUR)
    assert [action.session_id for action in await sweeper.sweep()] == [session.id], "it has been used since"


async def test_undoing_goes_past_empty_sessions_that_earlier_resets_left(bench):
    bench.policy("idle")
    old = await bench.spoken()
    for number in range(3):
        session = await bench.database.read(sessions.get, await bench.current())
        reset = Renewed(previous_id=session.id, rule="idle", reason="nothing was said")
        await bench.database.write(resets.renew, session, f"s-empty{number}", reset, at=bench.clock.now())

    back = await bench.engine.resets.undo("s-empty2")

    assert (back.id, await bench.current()) == (old, old)
    ended = [(await bench.database.read(sessions.get, f"s-empty{number}")).summary.ended_at for number in range(3)]
    assert None not in ended


async def test_without_a_policy_nothing_is_ever_reset(bench):
    sweeper = bench.policy("none")
    old = await bench.spoken()
    bench.clock.pass_seconds(1000 * HOUR)

    assert await sweeper.sweep() == []
    assert (await bench.stage.session(channel="telegram:1", source="gateway")).id == old
    assert await bench.current() == old


async def test_each_channel_has_its_own_policy(bench):
    from zoneinfo import ZoneInfo

    sweeper = bench.policy("none", telegram=ResetPolicy("idle", 30, 6, ZoneInfo("UTC")))
    chatty, quiet = await bench.spoken("telegram:1"), await bench.spoken("matrix:1")
    bench.clock.pass_seconds(31 * MINUTE)

    await sweeper.sweep()

    assert await bench.current("telegram:1") != chatty
    assert await bench.current("matrix:1") == quiet


async def test_two_workers_at_once_make_one_reset(bench, tmp_path, stages):
    first = bench.policy("idle")
    other = await set_up(tmp_path, database=bench.database, clock=bench.clock)
    stages.append(other)
    second = with_resets(other.engine, policies("idle"), bench.registry).resets
    channels = [f"telegram:{number}" for number in range(20)]
    for channel in channels:
        await bench.spoken(channel)
    bench.clock.pass_seconds(IDLE * MINUTE)

    done = await asyncio.gather(first.sweep(), second.sweep())

    assert sum(action.what == "reset" for actions in done for action in actions) == 20
    page = await bench.database.read(session_list.list_page, session_list.EVERYTHING, limit=100)
    assert len(page.sessions) == 40


async def test_a_message_at_the_last_moment_prevents_the_reset(bench):
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


async def test_annotations_are_no_activity(bench):
    """A process that ends, a title or a skipped reset does not keep a session from its reset."""
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE - 60)
    await bench.database.write(sessions.rename, old, "A title", at=bench.clock.now())
    bench.clock.pass_seconds(60)

    assert [action.what for action in await sweeper.sweep()] == ["reset"]


# when it is next used


async def test_a_message_to_a_channel_after_the_hour_starts_a_new_session_without_a_sweep(bench):
    bench.policy("daily")
    old = await bench.spoken()
    bench.clock.pass_seconds(24 * HOUR)

    session = await bench.stage.session(channel="telegram:1", source="gateway")

    assert session.id != old
    assert (await bench.events(session.id, Renewed))[0].previous_id == old


async def test_an_api_session_that_ended_as_idle_is_reset_nevertheless(bench):
    bench.policy("idle")
    old = await bench.spoken("api:me", source="api")
    bench.clock.pass_seconds(61 * MINUTE)
    await bench.stage.janitor().sweep()
    ended = await bench.database.read(sessions.get, old)
    bench.clock.pass_seconds(60 * MINUTE)

    session = await bench.stage.session(channel="api:me")

    assert ended.summary.end_reason == "idle"
    assert session.id != old


async def test_a_session_that_is_open_is_reset_with_its_next_message(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken(None, source="chat", own=True)
    bench.clock.pass_seconds(IDLE * MINUTE)

    swept = await sweeper.sweep()
    new = await bench.engine.resets.renew_if_due(old)

    assert swept == []
    assert new.id != old
    assert new.owner_worker == bench.stage.worker_id
    assert (await bench.database.read(sessions.get, old)).owner_worker is None
    assert (await bench.events(old, Ended))[0].reason == "session_reset"


async def test_an_old_session_that_is_resumed_by_name_is_not_reset(bench):
    bench.policy("both")
    old = await bench.spoken(None, source="chat", own=True)
    await bench.engine.owned.leave(old)
    bench.clock.pass_seconds(1000 * HOUR)

    assert (await bench.stage.session(ref=old)).id == old
    assert (await bench.engine.resets.renew_if_due(old)).id == old


# what blocks it


async def test_a_running_turn_blocks_a_reset(bench, tmp_path, stages):
    stage = await set_up(
        tmp_path,
        ScriptStep(call=(ScriptedCall("sleep"),)),
        ScriptStep(say="Done."),
        database=bench.database,
        clock=bench.clock,
    )
    stages.append(stage)
    sweeper = bench.policy("both")
    session = await stage.session(channel="telegram:9", source="gateway")
    await stage.admit(session.id, "Sleep.")
    async with asyncio.timeout(10):
        await stage.hanging_tool.sleeping.wait()
    bench.clock.pass_seconds(30 * HOUR)

    first, second = await sweeper.sweep(), await sweeper.sweep()
    same = await bench.engine.resets.renew_if_due(session.id)

    assert [action.what for action in first] == ["reset skipped"]
    assert second == []
    assert same.id == session.id
    [skipped] = await bench.events(session.id, ResetSkipped)
    assert skipped.reason == "no message for 30 h, but a turn is open"
    await stage.engine.interrupt(session.id)


async def test_an_open_question_blocks_a_reset(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    await bench.database.write(approvals.ask, old, "turn-1", "c1", "May I?", at=bench.clock.now())
    bench.clock.pass_seconds(IDLE * MINUTE)

    await sweeper.sweep()

    assert await bench.current() == old
    [skipped] = await bench.events(old, ResetSkipped)
    assert skipped.reason == "no message for 2 h, but an approval question is open"


@pytest.mark.process
async def test_promise_15_a_skipped_reset_is_reported_once_for_each_reason(bench, tmp_path, caplog):
    caplog.set_level(logging.INFO, "holdfast.engine.reset.reset")
    sweeper = bench.policy("daily")
    old = await bench.spoken()
    one = await bench.start_talker("one", old, tmp_path)
    bench.clock.pass_seconds(24 * HOUR)

    for _ in range(3):
        await sweeper.sweep()
    two = await bench.start_talker("two", old, tmp_path)
    for _ in range(3):
        await sweeper.sweep()

    first, second = await bench.events(old, ResetSkipped)
    assert first.reason == "the daily reset of 06:00 (UTC), but 1 of its processes are active"
    assert first.processes[0].startswith(f"{one.id} `while :; do echo one; sleep 0.02; done`: working, ")
    assert [line.split()[0] for line in second.processes] == [one.id, two.id]
    lines = [record for record in caplog.records if "was skipped" in record.message]
    assert [record.levelname for record in lines] == ["INFO", "INFO"]
    assert one.id in lines[0].message


@pytest.mark.process
async def test_activity_past_the_time_to_live_blocks_nothing(bench, tmp_path):
    sweeper = bench.policy("daily")
    old = await bench.spoken()
    await bench.start_talker("tick", old, tmp_path)
    bench.clock.pass_seconds(49 * HOUR)

    await sweeper.sweep()

    assert await bench.current() != old
    assert "past its time to live of 2 d" in (await bench.told("home"))[0][1]


# processes


@pytest.mark.process
@pytest.mark.parametrize("mode", ["idle", "daily"])
async def test_promise_15_idle_servers_do_not_block_a_reset_and_a_build_does_until_it_is_done(bench, tmp_path, mode):
    """Two idle preview servers; a reset is due; another process is building something."""
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

    assert [action.what for action in held] == ["reset skipped"]
    [skipped] = await bench.events(old, ResetSkipped)
    assert [line.split()[0] for line in skipped.processes] == [build.id], "the servers do not block it"
    assert [action.what for action in done] == ["reset"]
    new = await bench.current()
    [reset] = await bench.events(new, Renewed)
    assert (reset.rule, set(reset.processes)) == (mode, {server.id for server in servers})
    for server in servers:
        assert f"{server.id} `exec {sys.executable} -u -m http.server 0 --bind 127.0.0.1` (listens on 127.0.0.1:" in (
            reset.notice
        )
    told = [text for _, text in await bench.told("home")]
    assert told == ([reset.notice] if mode == "daily" else []), "the home channel is notified at the daily reset"
    assert len(await bench.registry.list()) == 2, "and they keep running"


def _output(process) -> int:
    return ProcessDir(Path(process.folder)).read(limit=1).total


def _listening(registry, servers) -> int:
    from holdfast.processes import procfs

    machine, sockets = procfs.read_process_table(), procfs.Sockets()
    found = [machine.members(one.id, ProcessDir(Path(one.folder)).leader, None) for one in servers]
    return sum(bool(sockets.listening_addresses(members)) for members in found)


@pytest.mark.process
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
    word = "Stopped with it" if on_reset == "stop" else "Still running from it"
    assert f"{word}: {process.id} `sleep 300` (no sign of work for 24 h" in (await bench.told("telegram"))[0][1]


# undo


async def test_promise_15_a_reset_can_be_undone_with_all_messages(bench):
    sweeper = bench.policy("both")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    new = await bench.current()
    bench.clock.pass_seconds(23 * HOUR)

    back = await bench.engine.resets.undo(new)
    await bench.stage.play(old, "Where were we?")

    assert (back.id, await bench.current(), back.state) == (old, old, "waiting")
    assert (await bench.events(old, Reopened))[0].reason == f"the reset that created {new} was undone"
    assert (await bench.database.read(sessions.get, new)).summary.end_reason == "user"
    assert (await bench.database.read(sessions.get, old)).summary.message_count == 4
    assert await sweeper.sweep() == [], "it is not reset again at once"


async def test_a_restored_session_counts_as_used(bench):
    sweeper = bench.policy("idle")
    await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    await bench.engine.resets.undo(await bench.current())

    early = await sweeper.sweep()
    bench.clock.pass_seconds(IDLE * MINUTE)
    late = await sweeper.sweep()

    assert early == []
    assert [action.what for action in late] == ["reset"]


async def test_a_reset_cannot_be_undone_after_a_day(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    bench.clock.pass_seconds(24 * HOUR + 1)

    with pytest.raises(Invalid, match=f"previous session {old}"):
        await bench.engine.resets.undo(await bench.current())


async def test_without_a_reset_there_is_nothing_to_undo(bench):
    bench.policy("idle")

    with pytest.raises(Invalid, match="nothing to undo"):
        await bench.engine.resets.undo(await bench.spoken())


async def test_a_session_in_the_trash_is_not_restored_by_an_undo(bench):
    sweeper = bench.policy("idle")
    old = await bench.spoken()
    bench.clock.pass_seconds(IDLE * MINUTE)
    await sweeper.sweep()
    await bench.database.write(sessions.trash, old, at=bench.clock.now())

    with pytest.raises(NotFound, match="trash"):
        await bench.engine.resets.undo(await bench.current())


# /new


@pytest.mark.process
@pytest.mark.parametrize("leaving", ["stop", "keep", "hand_over"])
async def test_a_user_who_starts_a_new_session_chooses_what_happens_to_the_processes(bench, tmp_path, leaving):
    bench.policy("none")
    old = await bench.spoken(None, source="chat", own=True)
    process = await bench.start("sleep 300", old, tmp_path)

    new = await bench.engine.resets.replace(old, leaving)

    after = await bench.registry.get(process.id)
    to = new.id if leaving == "hand_over" else ""
    assert await bench.events(old, ProcessesLeft) == [ProcessesLeft(processes=(process.id,), action=leaving, to=to)]
    assert (after.ended_at is None) == (leaving != "stop")
    assert after.session_id == (new.id if leaving == "hand_over" else old)
    received = [ProcessesReceived(processes=(process.id,), origin=old)] if leaving == "hand_over" else []
    assert await bench.events(new.id, ProcessesReceived) == received
    assert new.owner_worker == bench.stage.worker_id


async def test_a_new_session_can_be_undone_too(bench):
    bench.policy("none")
    old = await bench.spoken()
    new = await bench.engine.resets.replace(old)

    assert (await bench.engine.resets.undo(new.id)).id == old
    assert await bench.current() == old
