import asyncio
import os
from pathlib import Path

import pytest

from holdfast.model.errors import Unsupported
from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.tools.backends.registry import only_local
from holdfast.tools.sandbox import open_sandbox
from holdfast.tools.terminal import TerminalTool

pytestmark = pytest.mark.process

KEY = "hfk-0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a key in it, and the directories of two sessions."""
    home = tmp_path / "home"
    for name in ("work/own", "work/other", "files/own", "files/other"):
        (home / name).mkdir(parents=True)
        (home / name / "note.txt").write_text(f"of {name}")
    (home / "api-key").write_text(KEY)
    return home


@pytest.fixture
def scene(home: Path) -> ToolContext:
    return ToolContext(session_id="own", turn_id="t", call_id="c", workdir=home / "work/own", files=home / "files/own")


@pytest.fixture
def terminal(home: Path) -> TerminalTool:
    return TerminalTool(os.environ, home=home, backends=only_local(open_sandbox("required", home, os.environ)))


async def run(terminal: TerminalTool, scene: ToolContext, command: str, **given: object) -> str:
    return text_of((await terminal.run({"command": command, **given}, scene)).parts)


async def test_a_command_in_the_sandbox_sees_of_the_home_only_its_own_directories(terminal, scene, home):
    (scene.workdir / "look.py").write_text(f"import os\nfor at, _, names in os.walk({str(home)!r}): print(at, names)\n")

    said = await run(terminal, scene, "python3 look.py")

    assert f"{home}/work/own ['" in said
    assert f"{home}/files/own ['note.txt']" in said
    assert "api-key" not in said
    assert "other" not in said


async def test_the_own_working_directory_can_be_written_and_the_own_files_only_read(terminal, scene, home):
    (scene.workdir / "write.py").write_text(
        f"open('made.txt', 'w').write('x')\n"
        f"try: open({str(scene.files / 'made.txt')!r}, 'w')\nexcept OSError as e: print(e.strerror)\n"
    )

    said = await run(terminal, scene, "python3 write.py")

    assert (home / "work/own/made.txt").read_text() == "x"
    assert "Read-only file system" in said


async def test_the_sandbox_leaves_everything_else_as_it_is(terminal, scene, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()

    said = await run(terminal, scene, f"id -u; echo x > {outside}/made; echo $HOME; exit 7")

    assert said.splitlines()[:2] == [str(os.getuid()), os.environ["HOME"]]
    assert "exit code 7" in said
    assert (outside / "made").exists()


async def test_a_command_cannot_escape_the_sandbox_through_other_processes(terminal, scene, home):
    (scene.workdir / "look.py").write_text(
        "import os\n"
        "for pid in filter(str.isdecimal, os.listdir('/proc')):\n"
        "    try: print(open('/proc/' + pid + '/root" + str(home) + "/api' + '-key').read())\n"
        "    except OSError: pass\n"
        "print('looked')\n"
    )

    said = await run(terminal, scene, "python3 look.py")

    assert "looked" in said
    assert KEY not in said


async def test_the_hidden_home_cannot_be_uncovered(terminal, scene, home):
    (scene.workdir / "uncover.sh").write_text(
        f"umount -l {home}; unshare -m umount -l {home}; unshare -Urm umount -l {home}; nsenter -t 1 -m ls -A {home}\n"
        f"mount --bind {home} /mnt; ls -A {home}\n"
    )

    said = await run(terminal, scene, "sh uncover.sh")

    assert "exit code 0" in said
    assert "api-key" not in said.replace("umount", "")


async def test_a_store_outside_the_home_is_an_empty_file(home, scene, tmp_path):
    store = tmp_path / "store.db"
    store.write_text("rows")
    terminal = TerminalTool(
        os.environ, home=home, backends=only_local(open_sandbox("required", home, os.environ, [store]))
    )

    assert "rows" not in await run(terminal, scene, f"cat {store}")
    assert store.read_text() == "rows"


async def test_processes_that_a_command_leaves_behind_in_the_sandbox_are_ended_and_named(terminal, scene):
    said = await run(terminal, scene, "sleep 300 & echo started")

    assert "[processes it left running were ended: sleep]" in said


async def test_a_command_in_the_sandbox_is_stopped_at_its_time_limit(terminal, scene):
    said = await run(terminal, scene, "sleep 300", timeout_seconds=0.5)

    assert "stopped at the time limit" in said


async def test_a_cancelled_command_in_the_sandbox_leaves_nothing(terminal, scene):
    task = asyncio.ensure_future(run(terminal, scene, "touch begun; sleep 301; touch ended"))
    while not (scene.workdir / "begun").exists():
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})

    assert not (scene.workdir / "ended").exists()


def test_without_bwrap_there_is_no_sandbox_and_it_says_why(home):
    found = open_sandbox("auto", home, {"PATH": "/nowhere"})

    assert found.program is None
    assert found.reason == "bwrap is not installed"


def test_a_bwrap_that_does_not_work_is_not_used(home, tmp_path):
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)

    found = open_sandbox("auto", home, {"PATH": str(broken.parent)})

    assert found.program is None
    assert found.reason == "bwrap does not work here: bwrap: No permissions to create new namespace"


def test_a_bwrap_that_does_not_hide_the_home_is_not_used(home, tmp_path):
    pretending = tmp_path / "bin" / "bwrap"
    pretending.parent.mkdir()
    pretending.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    pretending.chmod(0o755)

    assert open_sandbox("auto", home, {"PATH": f"{pretending.parent}:/bin"}).reason.endswith("the home is not hidden")


def test_a_sandbox_that_is_required_and_missing_stops_the_start(home):
    with pytest.raises(Unsupported, match="sandbox is required, but bwrap is not installed"):
        open_sandbox("required", home, {"PATH": "/nowhere"})


def test_the_sandbox_can_be_turned_off(home):
    assert open_sandbox("off", home, os.environ).program is None
