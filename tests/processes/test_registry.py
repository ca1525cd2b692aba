"""Processes outlive their workers, are found again by their identity, and each change is reported once."""

import asyncio
import fcntl
import os
import signal
from pathlib import Path

import msgspec
import psutil
import pytest

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.event import ProcessEnded, ProcessExpired, ProcessStarted
from holdfast.process_lookup import current_identity
from holdfast.processes import procfs
from holdfast.processes.launch import launch
from holdfast.processes.process_dir import LaunchPlan, ProcessDir
from holdfast.processes.registry import ProcessLimits
from holdfast.store.repos import log, processes
from tests.crash.programs import wait_until
from tests.processes.conftest import TTL_SECONDS

pytestmark = pytest.mark.process

LONG = 30.0
"""Longer than anything here takes."""


def folder_of(process) -> ProcessDir:
    return ProcessDir(Path(process.folder))


def members_of(process) -> list[procfs.ProcessStat]:
    folder = folder_of(process)
    return procfs.read_process_table().members(process.id, folder.leader, folder.shim)


async def until(true, what) -> None:
    await asyncio.to_thread(wait_until, true, what, LONG)


# start and end


async def test_promise_13_a_process_has_an_owner_a_start_an_output_and_an_end(registry, session_id, workdir, events):
    process = await registry.start("echo out; echo err >&2; pwd; exit 3", workdir, session_id)

    ended = await registry.wait(process, LONG)

    page = await registry.read_output(ended)
    assert page.text == f"out\nerr\n{workdir}\n"
    assert (ended.session_id, ended.exit_code, ended.end_reason) == (session_id, 3, "exit code 3")
    assert await events() == [
        (await events())[0],
        ProcessStarted(process_id=process.id, command=process.command, workdir=str(workdir)),
        ProcessEnded(
            process_id=process.id,
            reason="exit code 3",
            exit_code=3,
            command=process.command,
            tail=f"out\nerr\n{workdir}",
        ),
    ]


async def test_a_command_that_does_not_exist_ends_with_127_and_says_so(registry, session_id, workdir):
    ended = await registry.wait(await registry.start("no-such-program --x", workdir, session_id), LONG)

    assert ended.exit_code == 127
    assert "no-such-program" in (await registry.read_output(ended)).text


async def test_a_missing_directory_is_reported_in_its_output(registry, session_id, tmp_path):
    ended = await registry.wait(await registry.start("true", tmp_path / "nowhere", session_id), LONG)

    assert ended.exit_code == 127
    assert "cannot start the command" in (await registry.read_output(ended)).text


async def test_a_signal_is_reported_as_a_signal(registry, session_id, workdir):
    ended = await registry.wait(await registry.start("kill -9 $$", workdir, session_id), LONG)

    assert (ended.exit_code, ended.end_reason) == (-9, "ended by signal 9")


async def test_a_failed_start_is_recorded_before_and_after(new_registry, session_id, workdir, tmp_path, events):
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable):
        await new_registry(home=tmp_path / "file").start("touch mark", workdir, session_id)

    started, ended = (await events())[1:]
    assert isinstance(started, ProcessStarted)
    assert isinstance(ended, ProcessEnded)
    assert ended.reason.startswith("not started")
    assert not (workdir / "mark").exists()


async def test_promise_13_a_cancelled_start_does_not_happen_later(registry, session_id, workdir, events, monkeypatch):
    prepare, locks = ProcessDir.prepare, []

    def prepare_and_hold_up(folder, *spec):
        prepare(folder, *spec)
        locks.append(os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(locks[0], fcntl.LOCK_EX)

    monkeypatch.setattr(ProcessDir, "prepare", prepare_and_hold_up)
    monkeypatch.setattr("holdfast.processes.launch.LAUNCH_SECONDS", 0.5)
    with pytest.raises(Unavailable, match="not ready"):
        await registry.start("touch mark", workdir, session_id)
    os.close(locks[0])

    ended = (await events())[-1]
    assert isinstance(ended, ProcessEnded)
    assert ended.reason.startswith("not started: the process shim was not ready")
    [folder] = (workdir.parent / "home" / "processes").iterdir()
    await until(lambda: not any(str(folder) in one.info["cmdline"] for one in running()), "its shim to end")
    assert not (workdir / "mark").exists()


def running() -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"]]


async def test_the_environment_is_what_was_given_and_the_marker(registry, session_id, workdir):
    ended = await registry.wait(await registry.start("env | sort", workdir, session_id), LONG)

    names = {line.partition("=")[0] for line in (await registry.read_output(ended)).text.splitlines()}
    assert names == {"HOLDFAST_PROCESS", "PATH", "PWD", "SHLVL", "_"}


async def test_broken_pipes_end_a_program_as_in_any_shell(registry, session_id, workdir):
    ended = await registry.wait(await registry.start("yes | head -1; echo ${PIPESTATUS[0]}", workdir, session_id), LONG)

    assert (await registry.read_output(ended)).text == "y\n141\n"


async def test_files_are_private(registry, session_id, workdir):
    process = await registry.wait(await registry.start("echo secret", workdir, session_id), LONG)

    folder = Path(process.folder)
    assert {folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777} == {0o700}
    assert {path.name: path.stat().st_mode & 0o077 for path in folder.iterdir()} == dict.fromkeys(
        (path.name for path in folder.iterdir()), 0
    )


async def test_a_cancelled_start_leaves_nothing(registry, session_id, workdir, database):
    """Cancelled at any of its steps, or just after the last."""
    for naps in range(0, 400, 8):
        starting = asyncio.ensure_future(registry.start("sleep 300", workdir, session_id))
        for _ in range(naps):
            await asyncio.sleep(0)
            await asyncio.sleep(0.0005)
        starting.cancel()
        try:
            await registry.stop(await starting, "it was too late to cancel", grace_seconds=0)
            break
        except asyncio.CancelledError:
            continue

    assert await database.read(processes.list_live) == []
    ours = {one.id for one in await database.read(processes.list_by_session, session_id)}
    assert not [one for one in procfs.read_process_table().by_pid.values() if one.marker in ours]


# killed shims and workers


async def test_promise_13_another_worker_finds_it_again_with_output_and_exit_code(new_registry, session_id, workdir):
    process = await new_registry().start("read line; echo got $line; exit 5", workdir, session_id)

    successor = new_registry()
    [found] = await successor.list()
    await successor.write(found, "it\n", close=False)
    ended = await successor.wait(found, LONG)

    assert (found.id, found.pid, ended.exit_code) == (process.id, process.pid, 5)
    assert (await successor.read_output(ended)).text == "got it\n"


async def test_a_killed_shim_costs_nothing_but_the_exit_code(registry, session_id, workdir, events):
    command = "trap '' HUP; echo before; while [ ! -e go ]; do sleep 0.02; done; seq 200000; exit 9"
    process = await registry.start(command, workdir, session_id)
    folder = folder_of(process)
    await until(lambda: folder.output_bytes() > 0, "it speaks")

    os.kill(folder.shim.pid, signal.SIGKILL)
    (workdir / "go").touch()
    await until(lambda: not procfs.read_process_table().runs(folder.shim), "the shim is gone")
    before = folder.shim
    await until(lambda: members_of(process)[0].pid and folder.output_bytes() < 100, "it waits for a reader")
    [found] = await registry.list()
    ended = await registry.wait(found, LONG)

    assert folder.shim != before
    text = (await registry.read_output(ended, 0, 1 << 21)).text
    assert text == "before\n" + "".join(f"{number}\n" for number in range(1, 200_001)), "not a byte is missing"
    assert (ended.exit_code, ended.end_reason) == (None, "exit code not known: its shim was killed")
    assert sum(isinstance(event, ProcessEnded) for event in await events()) == 1


async def test_a_shim_that_was_killed_after_the_end_has_recorded_it(registry, session_id, workdir):
    process = await registry.start("(trap '' TERM; exec sleep 300) & exit 4", workdir, session_id)
    folder = folder_of(process)
    await until(lambda: folder.exit_code is not None, "the shell has ended")

    [seen] = await registry.list()
    os.kill(folder.shim.pid, signal.SIGKILL)
    ended = await registry.stop(process, "ended by a test", grace_seconds=0)

    assert seen.track.newest.members == 1, "its background children belong to it"
    assert (ended.exit_code, ended.end_reason) == (4, "ended by a test (exit code 4)")


async def test_two_observers_of_the_end_record_it_once(new_registry, session_id, workdir, events):
    first, second = new_registry(), new_registry()
    process = await first.start("true", workdir, session_id)
    await until(lambda: folder_of(process).has("done"), "it has ended")

    await asyncio.gather(*(one.refresh() for one in (first, second) * 5))

    assert sum(isinstance(event, ProcessEnded) for event in await events()) == 1


async def test_an_end_is_detected_without_a_request(registry, session_id, workdir, database):
    watching = asyncio.create_task(registry.watch())
    process = await registry.start("sleep 0.1", workdir, session_id)

    async with asyncio.timeout(LONG):
        async for _ in database.listen(session_id):
            if (await database.read(processes.get, process.id)).ended_at is not None:
                break
    watching.cancel()


# crashes between the row and the program


async def test_a_row_without_a_program_is_closed_after_the_start_limit(registry, session_id, clock, database):
    process = registry.plan("true", Path("/"), session_id)
    await database.write(processes.add, process)

    await registry.refresh()
    early = await database.read(processes.get, process.id)
    clock.pass_seconds(31)
    await registry.refresh()
    late = await database.read(processes.get, process.id)

    assert early.ended_at is None
    assert (late.exit_code, late.end_reason) == (None, "exit code not known: it was never started")


async def test_a_program_whose_worker_died_at_once_is_found_again(registry, session_id, workdir, database):
    """The state after a crash between the start of the shim and the record of its pid."""
    process = registry.plan("sleep 300", workdir, session_id)
    await database.write(processes.add, process)
    folder = folder_of(process)
    folder.prepare(process.id, process.command, LaunchPlan(workdir), 1 << 20)
    await launch("start", folder, {})

    [found] = await registry.list()
    [stored] = await database.read(processes.list_live)

    assert found.track.newest.members == 1
    assert stored.pid == folder.leader.pid


# identity


@pytest.fixture
async def impostor(registry, session_id, database):
    """A process whose pid now belongs to this program."""
    process = registry.plan("server", Path("/"), session_id)
    await database.write(processes.add, process)
    folder = Path(process.folder)
    folder.mkdir(parents=True)
    (folder / "started").write_text(f'{{"pid": {os.getpid()}, "started": "1"}}')
    (folder / "keeper").write_text(f'{{"pid": {os.getpid()}, "started": "1"}}')
    return process


async def test_a_reused_pid_is_not_the_process(registry, impostor, database):
    await registry.refresh()

    ended = await database.read(processes.get, impostor.id)
    assert ended.end_reason == "exit code not known: its shim was killed"


async def test_a_reused_pid_is_not_signalled(registry, impostor):
    assert await registry.signal(impostor, "KILL") == 0
    ended = await registry.stop(impostor, "ended by a test", grace_seconds=0)

    assert ended.ended_at is not None, "and this program still runs"


async def test_a_process_from_before_a_reboot_is_gone(new_registry, session_id, workdir, database):
    process = await new_registry().start("sleep 300", workdir, session_id)
    ours = current_identity()
    later = msgspec.structs.replace(ours, boot=f"another-boot {ours.boot.split(' ')[1]}")

    await new_registry(ours=later).refresh()

    ended = await database.read(processes.get, process.id)
    assert ended.end_reason == "exit code not known: the machine was rebooted"
    psutil.Process(process.pid).kill()


async def test_a_process_of_another_machine_is_left_alone(new_registry, session_id, workdir, database):
    process = await new_registry().start("sleep 300", workdir, session_id)
    elsewhere = new_registry(ours=msgspec.structs.replace(current_identity(), host="elsewhere"))

    [found] = await elsewhere.list()

    assert found.ended_at is None
    assert "as it was last seen on" in elsewhere.classify(found).evidence
    for refused in (elsewhere.stop(found, "x"), elsewhere.signal(found, "TERM"), elsewhere.read_output(found)):
        with pytest.raises(Unavailable):
            await refused
    assert members_of(process)


# its children


async def test_a_child_that_detaches_twice_and_wipes_its_environment_is_found_and_ended(registry, session_id, workdir):
    (workdir / "daemon").write_text("exec 1>&- 2>&-; sleep 300 & echo $! > pid.new; mv pid.new pid")
    command = "env -i setsid /bin/bash -c 'env -i PATH=$PATH setsid /bin/bash daemon &' </dev/null; exit 0"
    process = await registry.start(command, workdir, session_id)
    await until((workdir / "pid").exists, "it has detached itself")
    pid = int((workdir / "pid").read_text())
    await until(lambda: folder_of(process).exit_code == 0 and len(members_of(process)) == 1, "the rest has ended")

    [found] = await registry.list()
    ended = await registry.stop(found, "ended by a test")

    assert found.track.newest.members == 1
    assert not psutil.pid_exists(pid)
    assert (ended.exit_code, ended.end_reason) == (0, "ended by a test (exit code 0)")


async def test_a_daemon_is_found_by_its_marker_when_its_shim_was_killed(registry, session_id, workdir):
    process = await registry.start("(setsid sleep 300 &); exit 0", workdir, session_id)
    folder = folder_of(process)
    await until(lambda: folder.exit_code == 0, "the shell has ended")

    os.kill(folder.shim.pid, signal.SIGKILL)
    await until(lambda: not procfs.read_process_table().runs(folder.shim), "the shim is gone")

    assert [one.name for one in members_of(process)] == ["sleep"]


async def test_a_process_that_closes_its_output_continues_and_ends_with_its_code(registry, session_id, workdir):
    command = "exec >&- 2>&-; while [ ! -e go ]; do sleep 0.02; done; exit 6"
    process = await registry.start(command, workdir, session_id)
    await until(lambda: folder_of(process).has("eof"), "nobody can write any more")

    [found] = await registry.list()
    (workdir / "go").touch()
    ended = await registry.wait(found, LONG)

    assert (found.ended_at, ended.exit_code) == (None, 6)


async def test_a_whole_process_tree_is_ended_including_programs_that_ignore_sigterm(registry, session_id, workdir):
    command = "trap '' TERM; (trap '' TERM; sleep 300 & sleep 301 & touch up; wait) & wait; wait; sleep 302"
    process = await registry.start(command, workdir, session_id)
    await until((workdir / "up").exists, "the tree has grown")
    tree = members_of(process)

    ended = await registry.stop(process, "stopped by the user", grace_seconds=0.3)

    assert len(tree) == 4
    assert not [one for one in tree if procfs.read_process_table().runs(one.program)]
    assert ended.end_reason == "stopped by the user (ended by signal 9)"


async def test_a_stopped_process_can_be_ended_with_sigterm(registry, session_id, workdir):
    process = await registry.start(
        "trap 'touch bye; exit 0' TERM; touch up; while :; do sleep 0.05; done", workdir, session_id
    )
    await until((workdir / "up").exists, "it runs")

    await registry.signal(process, "STOP")
    ended = await registry.stop(process, "stopped by the user", grace_seconds=LONG)

    assert (workdir / "bye").exists()
    assert ended.exit_code == 0


async def test_a_foreign_child_of_ours_is_not_a_member(registry, session_id, workdir):
    ours = await registry.start("sleep 300", workdir, session_id)
    other = await registry.start("sleep 301", workdir, session_id)

    await registry.stop(ours, "ended by a test", grace_seconds=0)

    assert [one.pid for one in members_of(other)] == [other.pid]


# input, output, signals


async def test_input_is_given_and_closed(registry, session_id, workdir):
    process = await registry.start("cat; echo over", workdir, session_id)

    assert await registry.write(process, "one\n", close=False) == 4
    assert await registry.write(process, "two\n", close=True) == 4
    ended = await registry.wait(process, LONG)

    assert (await registry.read_output(ended)).text == "one\ntwo\nover\n"
    assert ended.exit_code == 0


async def test_a_process_that_does_not_read_its_input_blocks_nothing(registry, session_id, workdir):
    process = await registry.start("sleep 300", workdir, session_id)

    assert await registry.write(process, "x" * 200_000, close=False) == 65_536


async def test_input_after_its_end_is_refused(registry, session_id, workdir):
    process = await registry.start("sleep 300", workdir, session_id)
    await registry.write(process, "", close=True)
    with pytest.raises(Invalid, match="closed"):
        await registry.write(process, "more", close=False)
    ended = await registry.stop(process, "ended by a test", grace_seconds=0)

    with pytest.raises(Invalid, match="has ended"):
        await registry.write(ended, "more", close=False)


async def test_only_signals_of_the_list_are_sent(registry, session_id, workdir):
    process = await registry.start("trap 'exit 12' USR1; touch up; while :; do sleep 0.02; done", workdir, session_id)
    await until((workdir / "up").exists, "it listens")

    with pytest.raises(Invalid, match="TERM"):
        await registry.signal(process, "SEGV")
    await registry.signal(process, "SIGUSR1")

    assert (await registry.wait(process, LONG)).exit_code == 12


async def test_output_is_bounded_and_says_what_is_gone(new_registry, session_id, workdir):
    registry = new_registry(limits=ProcessLimits(ttl_seconds=60, output_bytes=200_000))
    process = await registry.wait(await registry.start("seq 1 300000", workdir, session_id), LONG)
    total = len("".join(f"{number}\n" for number in range(1, 300_001)))

    kept = sum(path.stat().st_size for path in Path(process.folder).glob("output-*"))
    tail = await registry.read_output(process, None, 1000)
    begin = await registry.read_output(process, 0, 1 << 22)

    assert kept < 200_000 + 2 * 65_536
    assert (tail.end, tail.total) == (total, total)
    assert tail.text.endswith("299999\n300000\n")
    assert begin.gone == begin.start == total - kept > 0
    assert len(begin.text) == kept


async def test_output_is_read_from_an_offset(registry, session_id, workdir):
    process = await registry.wait(await registry.start("seq 1 1000", workdir, session_id), LONG)

    first = await registry.read_output(process, 0, 1000)
    second = await registry.read_output(process, first.end, 1 << 20)

    assert (first.end, second.end) == (1000, second.total)
    assert first.text + second.text == "".join(f"{number}\n" for number in range(1, 1001))


# age


async def test_promise_15_an_expired_process_is_reported_once_and_blocks_nothing(
    registry, session_id, workdir, events, clock
):
    process = await registry.start("while :; do echo tick; sleep 0.02; done", workdir, session_id)
    [before] = await registry.list()
    blocked = registry.classify(before).blocks

    clock.pass_seconds(TTL_SECONDS + 1)
    await until(lambda: folder_of(process).output_bytes() > before.track.newest.output, "it works on")
    for _ in range(3):
        [after] = await registry.list()

    assert blocked
    assert (registry.classify(after).kind, registry.classify(after).blocks) == ("working", False)
    assert "past its time to live of 2 h" in registry.classify(after).evidence
    assert [event.ttl_seconds for event in await events() if isinstance(event, ProcessExpired)] == [TTL_SECONDS]


async def test_a_changed_clock_makes_no_process_older(registry, session_id, workdir, clock):
    await registry.start("sleep 300", workdir, session_id)

    clock.set_by(TTL_SECONDS * 100)
    [ahead] = await registry.list()
    clock.set_by(-TTL_SECONDS * 200)
    [behind] = await registry.list()

    assert [registry.classify(one).expired for one in (ahead, behind)] == [False, False]


async def test_a_server_that_only_listens_is_serving_with_its_addresses(registry, session_id, workdir, clock):
    import sys

    command = f"exec {sys.executable} -u -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); print('up'); s.accept()\""
    process = await registry.start(command, workdir, session_id)
    await until(lambda: folder_of(process).output_bytes() > 0, "it listens")
    await registry.refresh()

    clock.pass_seconds(400)
    [found] = await registry.list()

    [port] = [one.laddr.port for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
    assert found.track.newest.listens == (f"127.0.0.1:{port}",)
    seen = registry.classify(found)
    assert (seen.kind, seen.blocks) == ("serving", False)
    assert f"listens on 127.0.0.1:{port}; no sign of work for" in seen.evidence


async def test_one_inspection_serves_many_callers(registry, session_id, workdir, database):
    started = await asyncio.gather(*(registry.start(f"sleep {300 + n}", workdir, session_id) for n in range(50)))

    found = await registry.list()
    await asyncio.gather(*(registry.stop(one, "ended by a test", grace_seconds=0) for one in found[:25]))

    assert {one.id for one in found} == {one.id for one in started}
    assert {one.track.newest.members for one in found} == {1}
    assert len(await database.read(processes.list_live)) == 25
    ended = [entry.kind for entry in await database.read(log.read, session_id)].count("process_ended")
    assert ended == 25
