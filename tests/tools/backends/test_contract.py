"""What every terminal backend promises, on the real thing: bubblewrap, Podman and OpenSSH."""

import asyncio
import os
import re

import pytest

from holdfast.model.message import text_of
from holdfast.store.repos import processes
from holdfast.tools.backends.registry import Backends
from holdfast.tools.make_image import MakeImageTool
from tests.tools.backends.conftest import SECRET, Terminal, eventually

pytestmark = pytest.mark.process
BACKENDS = ["local", "bubblewrap", "container", "ssh"]
SECONDS = str(1_000_000 + os.getpid())
"""How long a command sleeps that is to be found among all programs of this machine."""


@pytest.fixture(params=BACKENDS)
async def terminal(request, new_terminal) -> Terminal:
    return await new_terminal(request.param)


def process_id(text: str) -> str:
    found = re.search(r"proc-\w+", text)
    assert found is not None, text
    return found[0]


async def test_a_command_returns_its_output_and_exit_code(terminal):
    ok, text = await terminal.call("terminal", command="echo out; echo err >&2; exit 7")

    assert not ok
    assert sorted(text.splitlines()[:2]) == ["err", "out"]
    assert "exit code 7" in text


async def test_quotes_and_special_characters_reach_the_shell_unchanged(terminal):
    text = await terminal.run("""printf '%s\\n' "it's" '$HOME `x` \\\\' "tab	end" 'ümlaut 日本'""")

    assert text.splitlines()[:4] == ["it's", "$HOME `x` \\\\", "tab\tend", "ümlaut 日本"]


async def test_a_command_runs_in_the_working_directory_and_in_one_below(terminal):
    assert (await terminal.run("mkdir -p sub && pwd")).splitlines()[0] == str(
        terminal.backend.workdir(terminal.context)
    )
    assert (await terminal.run("pwd", workdir="sub")).splitlines()[0].endswith("/sub")


async def test_a_directory_that_does_not_exist_is_reported(terminal):
    ok, text = await terminal.call("terminal", command="echo ran", workdir="absent")

    assert not ok
    assert "absent" in text
    assert "ran\n" not in text


async def test_files_of_one_command_are_there_for_the_next(terminal):
    await terminal.run("echo kept >note; echo temporary >/tmp/holdfast-note")

    assert (await terminal.run("cat note /tmp/holdfast-note; rm /tmp/holdfast-note")).splitlines()[:2] == [
        "kept",
        "temporary",
    ]


async def test_secrets_are_not_in_the_environment(terminal):
    text = await terminal.run("env; cat /proc/self/environ")

    assert SECRET not in text


async def test_file_tools_and_commands_see_the_same_files(terminal):
    ok, text = await terminal.call("write_file", path="a dir/it's.txt", content="one\ntwo ümlaut\n")
    assert ok, text
    assert (await terminal.run("cat 'a dir/it'\"'\"'s.txt'")).startswith("one\ntwo ümlaut\n")

    await terminal.run("echo three >>'a dir/it'\"'\"'s.txt'")
    ok, text = await terminal.call("read_file", path="a dir/it's.txt")
    assert ok, text
    assert "three" in text

    ok, text = await terminal.call("edit_file", path="a dir/it's.txt", old="two", new="2")
    assert ok, text
    assert (await terminal.run("cat a*/*")).startswith("one\n2 ümlaut\nthree\n")

    ok, text = await terminal.call("search_files", pattern="^thr.e$")
    assert ok, text
    assert text == "a dir/it's.txt:3: three"

    ok, text = await terminal.call("read_file", path="a dir")
    assert "it's.txt" in text


async def test_file_tools_report_what_is_wrong(terminal):
    for name, arguments in (
        ("read_file", {"path": "absent"}),
        ("edit_file", {"path": "absent", "old": "a", "new": "b"}),
        ("write_file", {"path": "/proc/absent/x", "content": "x"}),
        ("read_file", {"path": "a\0b"}),
        ("search_files", {"pattern": "("}),
    ):
        ok, text = await terminal.call(name, **arguments)
        assert not ok, (name, text)
        assert text


async def test_the_mode_of_an_edited_file_is_kept(terminal):
    await terminal.run("echo echo hello >run.sh; chmod 751 run.sh")
    await terminal.call("edit_file", path="run.sh", old="hello", new="bye")

    assert (await terminal.run("./run.sh; ls -l run.sh")).startswith("bye\n-rwxr-x--x")


async def test_at_the_time_limit_every_program_of_the_command_is_ended(terminal):
    text = await terminal.run("sleep 98761 & sleep 98761; echo not reached", timeout_seconds=1)

    assert "time limit" in text
    await eventually(lambda: is_gone(terminal, "sleep", "98761"))


async def test_a_cancelled_command_is_ended(terminal):
    async with asyncio.TaskGroup() as group:
        call = group.create_task(terminal.run(f"sleep {SECONDS}; echo not reached"))
        await eventually(lambda: runs(terminal, "sleep", SECONDS))
        call.cancel()

    await eventually(lambda: is_gone(terminal, "sleep", SECONDS))


async def test_a_background_process_keeps_output_and_exit_code_across_a_restart(terminal, new_registry):
    started = await terminal.run("echo ready; read line; echo got $line; exit 5", background=True)
    found = process_id(started)

    # A worker that starts later knows only the store and the files.
    later = new_registry()
    process = await later.get(found)
    assert process.ended_at is None
    assert await later.write(process, "hello\n", close=False) == 6
    ended = await later.wait(process, 30)

    assert ended.exit_code == 5
    assert (await later.read_output(ended)).text == "ready\ngot hello\n"


async def test_a_background_process_can_be_ended(terminal, database):
    started = await terminal.run("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done", background=True)
    await eventually(lambda: says(terminal, process_id(started), "up"))
    ok, text = await terminal.call("process", action="kill", id=process_id(started))

    assert ok, text
    ended = (await database.read(processes.list_recent, 1))[0]
    assert ended.exit_code == 3, ended.end_reason


async def says(terminal: Terminal, found: str, text: str) -> bool:
    return text in (await terminal.call("process", action="log", id=found))[1]


async def runs(terminal: Terminal, *words: str) -> bool:
    return await terminal.count(*words) > 0


async def is_gone(terminal: Terminal, *words: str) -> bool:
    return await terminal.count(*words) == 0


async def test_an_image_to_edit_is_read_where_commands_run(terminal, database):
    await terminal.run("printf 'not an image' >note.png")
    tool = MakeImageTool(database, NoService(), home=None, backends=Backends([terminal.backend]))

    output = await tool.run({"prompt": "brighter", "inputs": ["note.png"]}, terminal.context)

    assert not output.ok
    assert (
        text_of(output.parts)
        == f"{terminal.backend.workdir(terminal.context)}/note.png is not a PNG, JPEG or WebP image"
    )


class NoService:
    """A service that must not be asked."""

    async def make(self, request, report):
        raise AssertionError("an invalid input was sent")
