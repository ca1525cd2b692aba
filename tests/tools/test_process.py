"""What the model can do with background processes."""

import asyncio
import os
import re
from pathlib import Path

import msgspec
import pytest

from holdfast.model.event import SessionOpened
from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.process_lookup import current_identity
from holdfast.processes import procfs
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.store.repos import processes, sessions
from holdfast.tools.backends.registry import only_local
from holdfast.tools.process import ProcessTool
from holdfast.tools.sandbox import open_sandbox
from holdfast.tools.terminal import TerminalTool
from holdfast.tools.toolbox import Toolbox

pytestmark = pytest.mark.process


def said(output) -> str:
    return text_of(output.parts)


def process_id(output) -> str:
    return re.search(r"proc-\w+", said(output))[0]


@pytest.fixture
async def registry(database, clock, tmp_path):
    limits = ProcessLimits(ttl_seconds=7200, output_bytes=1 << 20)
    made = ProcessRegistry(database, clock, current_identity(), tmp_path / "home", {"PATH": os.environ["PATH"]}, limits)
    yield made
    for process in await database.read(processes.list_live):
        await made.stop(process, "the test is over", grace_seconds=0)


@pytest.fixture
def process(registry, database):
    return ProcessTool(registry, database)


@pytest.fixture
async def new_scene(database, clock, tmp_path, ids):
    async def make(session_id: str, channel: str | None = None) -> ToolContext:
        await database.write(sessions.create, session_id, SessionOpened(source="api", channel=channel), at=clock.now())
        return ToolContext(
            session_id=session_id, turn_id="turn-1", call_id="c1", workdir=tmp_path, files=tmp_path / "files"
        )

    return make


@pytest.fixture
async def scene(new_scene):
    return await new_scene("hf-1")


@pytest.fixture
def start(process, search_path):
    terminal = TerminalTool(search_path, start_background=process.start)

    async def run(command: str, scene: ToolContext):
        return await terminal.run({"command": command, "background": True}, scene)

    return run


async def test_a_background_program_returns_at_once_with_its_id(start, process, scene):
    output = await start("echo ready; sleep 300", scene)

    assert output.ok
    assert re.fullmatch(r"started as process proc-\w+, pid \d+; follow it with the process tool\nready\n", said(output))


@pytest.fixture
def start_hidden(registry, database, search_path, tmp_path):
    """Starts a command in the sandbox of a session that works inside the home."""
    home = tmp_path / "home"
    (home / "work" / "hf-1").mkdir(parents=True)
    (home / "api-key").write_text("hfk-0123456789abcdef")
    sandbox = open_sandbox("required", home, os.environ)
    process = ProcessTool(registry, database, home=home)
    terminal = TerminalTool(search_path, home=home, start_background=process.start, backends=only_local(sandbox))

    async def run(command: str, scene: ToolContext):
        inside = msgspec.structs.replace(scene, workdir=home / "work" / "hf-1")
        return await terminal.run({"command": command, "background": True}, inside)

    return run


async def test_a_background_program_does_not_see_the_home(start_hidden, process, scene, tmp_path):
    looks = tmp_path / "home" / "work" / "hf-1" / "look.sh"
    looks.write_text('ls -A "$PWD/../.."; echo done; exit 3\n')

    output = await start_hidden("sh look.sh", scene)
    ended = await process.run({"action": "wait", "id": process_id(output), "seconds": 30}, scene)

    assert "exit code 3" in said(ended)
    assert "work\ndone" in said(ended)
    assert "api-key" not in said(ended)


async def test_a_program_in_the_sandbox_gets_input_and_signals_and_ends_like_any_other(start_hidden, process, scene):
    trapped = "trap 'echo bye; exit 5' TERM; read line; echo got $line; while true; do sleep 0.1; done"
    key = process_id(await start_hidden(trapped, scene))

    await process.run({"action": "write", "id": key, "text": "hello\n"}, scene)
    while "got hello" not in said(await process.run({"action": "log", "id": key}, scene)):
        await asyncio.sleep(0.05)
    await process.run({"action": "signal", "id": key, "signal": "TERM"}, scene)
    ended = await process.run({"action": "wait", "id": key, "seconds": 30}, scene)

    assert "exit code 5" in said(ended)
    assert "bye" in said(ended)


async def test_a_signal_that_ends_a_program_in_the_sandbox_is_reported_as_a_signal(start_hidden, process, scene):
    key = process_id(await start_hidden("sleep 1; kill -9 $$", scene))

    assert "signal 9" in said(await process.run({"action": "wait", "id": key, "seconds": 30}, scene))


async def test_killing_a_program_in_the_sandbox_ends_all_of_it(start_hidden, process, registry, scene):
    key = process_id(await start_hidden("setsid sleep 311 & sleep 312", scene))
    process_now = await registry.get(key)

    await process.run({"action": "kill", "id": key}, scene)

    assert (await registry.get(key)).ended_at is not None
    assert procfs.read_process_table().members(process_now.id, None, None) == []


async def test_a_program_that_fails_at_once_is_reported_at_once(start, scene):
    output = await start("no-such-program", scene)

    assert not output.ok
    assert "started and ended at once: exit code 127" in said(output)
    assert "command not found" in said(output)


async def test_promise_14_the_list_shows_what_each_process_does_and_what_blocks_a_reset(start, process, scene, clock):
    working = process_id(await start("while [ ! -e stop ]; do echo tick; sleep 0.02; done", scene))
    idle = process_id(await start("sleep 300", scene))
    clock.pass_seconds(600)

    lines = said(await process.run({"action": "list"}, scene)).splitlines()

    assert lines[0].startswith(f"{working} working, pid ")
    assert re.fullmatch(r"  [\d,]+ bytes of output just now; it blocks a reset of its session", lines[1])
    assert lines[2].startswith(f"{idle} idle, pid ")
    assert lines[2].endswith("started 10 min ago: sleep 300")
    assert lines[3] == "  no sign of work for 10 min"


async def test_promise_14_every_running_process_is_listed(start, process, scene, new_scene):
    other = await new_scene("hf-2")
    theirs = process_id(await start("sleep 300", other))

    short = said(await process.run({"action": "list"}, scene))
    whole = said(await process.run({"action": "list", "all": True}, scene))

    assert short == "[1 more in other sessions; list them with all=true]"
    assert theirs in whole
    assert "[session hf-2]" in whole


async def test_the_list_of_all_includes_ended_processes(start, process, scene):
    await start("exit 3", scene)

    assert said(await process.run({"action": "list"}, scene)) == "No background processes."
    assert re.fullmatch(
        r"proc-\w+ gone: exit 3\n  exit code 3", said(await process.run({"action": "list", "all": True}, scene))
    )


async def test_output_is_read_page_by_page(start, process, scene):
    one = process_id(await start("seq 1 10000; sleep 300", scene))
    await process.run({"action": "wait", "id": one, "seconds": 0.2}, scene)

    first = said(await process.run({"action": "log", "id": one, "offset": 0}, scene))
    tail = said(await process.run({"action": "log", "id": one}, scene))

    assert first.startswith("1\n2\n3\n")
    assert first.endswith("[bytes 0 to 20000 of 48894; continue with offset=20000]")
    assert tail.endswith("9999\n10000\n[bytes 28894 to 48894 of 48894]")


async def test_waiting_ends_with_the_process_or_with_the_time(start, process, scene):
    one = process_id(await start("read x; echo got $x; exit 2", scene))

    early = said(await process.run({"action": "wait", "id": one, "seconds": 0.1}, scene))
    given = await process.run({"action": "write", "id": one, "text": "it\n"}, scene)
    late = said(await process.run({"action": "wait", "id": one}, scene))

    assert early.startswith(f"process {one} is working")
    assert said(given) == "wrote 3 of 3 bytes"
    assert late.startswith(f"process {one} is gone: exit code 2\ngot it\n")


async def test_the_end_of_input_is_given_with_close(start, process, scene):
    one = process_id(await start("cat; exit 5", scene))

    given = await process.run({"action": "write", "id": one, "text": "x", "close": True}, scene)
    late = said(await process.run({"action": "wait", "id": one}, scene))

    assert said(given).endswith("its input is closed")
    assert "exit code 5" in late


async def test_it_is_signalled_and_killed(start, process, scene):
    one = process_id(await start("trap 'echo heard' USR1; while :; do sleep 0.02; done", scene))

    sent = said(await process.run({"action": "signal", "id": one, "signal": "USR1"}, scene))
    killed = said(await process.run({"action": "kill", "id": one}, scene))
    again = said(await process.run({"action": "kill", "id": one}, scene))

    assert re.fullmatch(r"sent USR1 to [12] programs?", sent)
    assert killed == again == f"process {one} is gone: ended by the agent (ended by signal 15)"


async def test_a_process_of_another_session_is_not_touched(start, process, scene, new_scene):
    theirs = process_id(await start("sleep 300", await new_scene("hf-2")))

    for action in ("log", "wait", "write", "signal", "kill"):
        output = await process.run({"action": action, "id": theirs, "signal": "TERM", "seconds": 0}, scene)
        assert not output.ok
        assert "belongs to session hf-2" in said(output)


async def test_after_a_reset_the_processes_of_the_channel_can_still_be_ended(start, process, new_scene):
    before, now = await new_scene("hf-before", "telegram:1"), await new_scene("hf-now", "telegram:1")
    old = process_id(await start("sleep 300", before))

    assert "is gone" in said(await process.run({"action": "kill", "id": old}, now))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"action": "log"}, "needs the id"),
        ({"action": "log", "id": "proc-nothing-like-it"}, "no process has the id"),
        ({"action": "log", "id": "1"}, "6 characters"),
    ],
)
async def test_errors_are_reported_to_the_model(process, scene, arguments, complaint):
    output = await process.run(arguments, scene)

    assert not output.ok
    assert complaint in said(output)


def test_the_schema_refuses_unknown_parameters(process):
    box = Toolbox([process])

    with pytest.raises(Exception, match="must be one of 'list'"):
        box.parse("process", '{"action": "start"}')
    with pytest.raises(Exception, match="must be one of 'INT'"):
        box.parse("process", '{"action": "signal", "id": "x", "signal": "SEGV"}')


def test_input_to_a_shell_is_checked_like_a_command(process, scene):
    assert process.risk({"action": "write", "id": "x", "text": "rm -rf build\n"}, scene)[0].part == "rm -rf build"
    assert process.risk({"action": "write", "id": "x", "text": "yes\n"}, scene) == ()
    assert process.risk({"action": "kill", "id": "x"}, scene) == ()


def test_recovery_does_not_repeat_its_calls(process):
    assert not process.repeatable


async def test_an_impossible_start_is_reported(database, clock, tmp_path, scene):
    (tmp_path / "file").touch()
    limits = ProcessLimits(ttl_seconds=1, output_bytes=1)
    broken = ProcessTool(ProcessRegistry(database, clock, current_identity(), tmp_path / "file", {}, limits), database)
    terminal = TerminalTool({}, start_background=broken.start)

    output = await terminal.run({"command": "touch mark", "background": True}, scene)

    assert not output.ok
    assert "cannot create the directory" in said(output)
    assert not Path(scene.workdir / "mark").exists()
