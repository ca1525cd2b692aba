import asyncio
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from holdfast.model.message import text_of
from holdfast.model.tool import ToolOutput
from holdfast.processes.process_dir import LaunchPlan
from holdfast.tools.backends.port import CommandPlace
from holdfast.tools.output_capture import MAX_FILE_BYTES, SHOWN_CHARS
from holdfast.tools.terminal import TerminalTool, without_secrets

pytestmark = pytest.mark.process


@pytest.fixture
def terminal(search_path):
    return TerminalTool(search_path)


@pytest.fixture
def run(terminal, scene):
    async def run(command, **more):
        return await terminal.run({"command": command, **more}, scene)

    return run


def said(output):
    return text_of(output.parts)


def saved(scene):
    return list(scene.files.iterdir()) if scene.files.exists() else []


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_command_returns_its_output_and_its_exit_code(run, scene):
    output = await run("echo one; echo two >&2; echo three")

    assert output.ok
    assert said(output).startswith("one\ntwo\nthree\n[exit code 0; ran for ")
    assert saved(scene) == [], "short output needs no file"


async def test_a_failure_is_reported_with_its_exit_code(run):
    output = await run("echo before; exit 3")

    assert not output.ok
    assert "before\n[exit code 3;" in said(output)


async def test_a_program_that_crashes_is_reported_with_its_signal(run):
    output = await run("kill -SEGV $$")

    assert not output.ok
    assert "ended by signal SIGSEGV" in said(output)


async def test_a_command_that_cannot_be_started_is_reported(run, scene):
    output = await run("true", workdir="nowhere")

    assert not output.ok
    assert "does not exist" in said(output)


async def test_a_command_that_is_too_long_for_the_system_is_reported(run):
    output = await run("true #" + "x" * 500_000)

    assert not output.ok
    assert "could not be started" in said(output)


async def test_it_runs_in_the_named_directory(run, scene):
    (scene.workdir / "sub").mkdir()

    assert said(await run("pwd")).startswith(f"{scene.workdir}\n")
    assert said(await run("pwd", workdir="sub")).startswith(f"{scene.workdir}/sub\n")
    assert said(await run("pwd", workdir="/")).startswith("/\n")


async def test_there_is_no_input_and_no_terminal(run):
    output = await run("read line; echo got=$?; test -t 0 || test -t 1 || echo none; (: < /dev/tty) 2>&1")

    assert "got=1\nnone\n" in said(output)
    assert "/dev/tty" in said(output), "a password prompt cannot reach the user's terminal either"


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800"])
async def test_text_that_cannot_be_passed_to_a_program_is_refused(run, command):
    assert not (await run(command)).ok


async def test_output_that_is_not_text_is_kept(run):
    output = await run(r"printf 'a\377\376b\0c\xc3\xa9'")

    assert said(output).startswith("a\udcff\udcfeb\0cé\n[exit code 0")


async def test_long_output_is_truncated_in_the_middle_and_saved_completely_in_a_private_file(run, scene):
    output = await run("seq 1 20000")

    text = said(output)
    assert text.startswith("1\n2\n3\n")
    assert "\n20000\n[exit code 0" in text
    assert len(text) < SHOWN_CHARS + 500
    (file,) = saved(scene)
    assert str(file) in text
    assert file.read_text() == "".join(f"{number}\n" for number in range(1, 20001))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.parent == scene.files, "whatever the call's id is made of"


async def test_characters_at_the_cut_are_not_split(run):
    text = said(await run("python3 -c \"print('aé€😀' * 30000)\" || perl -CS -e 'print \"aé€😀\" x 30000'"))

    assert not any("\udc80" <= letter <= "\udcff" for letter in text)


async def test_output_that_is_long_only_in_bytes_is_shown_completely_without_a_file(run, scene):
    text = said(await run("for i in {1..14000}; do printf é; printf ☃; done"))

    assert text.startswith("é☃" * 14_000 + "\n[exit code 0")
    assert saved(scene) == []


async def test_a_second_call_of_the_same_id_does_not_overwrite_the_first_ones_output(run, scene):
    await run("seq 1 20000")
    await run("seq 2 20001")

    assert sorted(file.read_text()[:2] for file in saved(scene)) == ["1\n", "2\n"]


@pytest.mark.timeout(300)
async def test_a_quarter_of_a_gigabyte_of_output_fills_neither_memory_nor_disk(run, scene):
    before = psutil.Process().memory_info().rss
    output = await run(r"head -c 256M /dev/zero | tr '\0' x", timeout_seconds=240)

    assert output.ok
    (file,) = saved(scene)
    assert file.stat().st_size == MAX_FILE_BYTES
    assert "268,435,456 bytes" in said(output)
    assert psutil.Process().memory_info().rss - before < 50_000_000


async def test_output_that_cannot_be_saved_is_still_shown(run, scene):
    scene.files.write_text("in the way")

    output = await run("seq 1 20000")

    assert output.ok
    assert "not saved" in said(output)
    assert "\n20000\n" in said(output)


async def test_a_command_is_stopped_at_its_time_limit_with_all_it_started(run, scene):
    output = await run("sleep 300 & echo $! > child; echo started; wait", timeout_seconds=0.5)

    assert not output.ok
    assert said(output).startswith("started\n[stopped at the time limit of 0.5 s")
    assert not is_running(int((scene.workdir / "child").read_text()))


async def test_a_command_that_ignores_sigterm_is_killed(run, scene):
    started = time.monotonic()
    output = await run("trap '' TERM; echo $$ > leader; while :; do sleep 1; done", timeout_seconds=0.5)

    assert not output.ok
    assert time.monotonic() - started < 15
    assert not is_running(int((scene.workdir / "leader").read_text()))


async def test_a_command_has_time_to_clean_up(run, scene):
    await run("trap 'echo tidy > mark; exit' TERM; while :; do sleep 0.1; done", timeout_seconds=0.5)

    assert (scene.workdir / "mark").read_text() == "tidy\n"


async def test_processes_left_behind_are_ended_and_named(run, scene):
    started = time.monotonic()
    output = await run("sleep 300 & echo $! > child; echo done")

    assert output.ok
    assert said(output).startswith("done\n[exit code 0")
    assert "[processes it left running were ended: sleep]" in said(output)
    assert not is_running(int((scene.workdir / "child").read_text()))
    assert time.monotonic() - started < 15


async def test_a_daemon_that_keeps_the_output_open_does_not_delay_the_result(run, scene):
    started = time.monotonic()
    output = await run("setsid sh -c 'echo $$ > daemon; exec sleep 300' & while [ ! -s daemon ]; do sleep 0.05; done")

    daemon = int((scene.workdir / "daemon").read_text())
    try:
        assert output.ok
        assert "a process that left the command's process group is still running" in said(output)
        assert time.monotonic() - started < 15
        assert is_running(daemon)
    finally:
        with suppress(ProcessLookupError):
            os.kill(daemon, 9)


async def test_the_end_of_a_process_substitution_is_not_lost(run):
    output = await run("echo hello > >(sleep 0.2; cat)")

    assert said(output).startswith("hello\n[exit code 0")


async def test_cancelling_ends_the_whole_group_before_it_propagates(terminal, scene):
    command = "sleep 300 & echo $! > child; echo $$ > leader; wait"
    call = asyncio.ensure_future(terminal.run({"command": command}, scene))
    await until(lambda: (scene.workdir / "leader").exists() and (scene.workdir / "leader").read_text())

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert not is_running(int((scene.workdir / "leader").read_text()))
    assert not is_running(int((scene.workdir / "child").read_text()))


async def test_cancelling_twice_kills_at_once(terminal, scene):
    command = "trap '' TERM; echo $$ > leader; while :; do sleep 1; done"
    call = asyncio.ensure_future(terminal.run({"command": command}, scene))
    await until(lambda: (scene.workdir / "leader").exists() and (scene.workdir / "leader").read_text())
    leader = int((scene.workdir / "leader").read_text())

    call.cancel()
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert not is_running(leader)


async def test_a_command_that_is_cancelled_while_it_starts_leaves_nothing(terminal, scene):
    for _ in range(20):
        call = asyncio.ensure_future(terminal.run({"command": "echo $$ >> pids; sleep 300"}, scene))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    pids = scene.workdir / "pids"
    assert not any(is_running(int(pid)) for pid in (pids.read_text().split() if pids.exists() else ()))


async def test_many_commands_run_concurrently(run):
    outputs = await asyncio.gather(*(run(f"sleep 0.2; echo {number}") for number in range(20)))

    assert [said(output).split()[0] for output in outputs] == [str(number) for number in range(20)]


async def test_secrets_of_the_environment_do_not_reach_the_command(search_path, scene):
    secrets = ["MY_KEY", "X_TOKEN", "A_SECRET", "DB_PASSWORD", "OPENAI_BASE_URL", "ANTHROPIC_X", "HOLDFAST_HOME"]
    terminal = TerminalTool({**search_path, **dict.fromkeys(secrets, "hush"), "LANG": "C", "MONKEY": "1", "KEYS": "2"})

    text = said(await terminal.run({"command": "env"}, scene))

    assert "hush" not in text
    assert {"LANG=C", "MONKEY=1", "KEYS=2"} <= set(text.split())


def test_names_of_secrets_are_recognised_in_any_case():
    given = dict.fromkeys(["api_key", "Token", "APIKEY", "PGPASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "HOME"], "x")

    assert list(without_secrets(given)) == ["HOME"]


async def test_background_is_refused_where_nothing_can_start_it(run, scene):
    output = await run("touch mark", background=True)

    assert not output.ok
    assert "not available" in said(output)
    assert not (scene.workdir / "mark").exists()


async def test_background_commands_go_to_the_process_registry(search_path, scene):
    started = []

    async def start(command, place, scene):
        started.append((command, place, scene.session_id))
        return ToolOutput.say("started as p1")

    terminal = TerminalTool(search_path, start_background=start)
    output = await terminal.run({"command": "serve", "background": True, "workdir": "/"}, scene)

    assert said(output) == "started as p1"
    assert started == [("serve", CommandPlace(Path("/"), LaunchPlan(Path("/"))), "hf-1")]


def test_a_command_of_the_list_needs_approval(terminal, scene):
    assert terminal.risk({"command": "rm -rf build"}, scene)[0].part == "rm -rf build"
    assert terminal.risk({"command": "make build"}, scene) == ()
