"""Promise 33 for terminal commands: with snapshots, a rewind also restores what they changed."""

import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.event import ToolEnded
from holdfast.model.file_change import TOO_LARGE, hash_content
from holdfast.model.message import text_of
from holdfast.model.tool import Tool
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.tools import command_snapshots
from holdfast.tools.atomic_replace import FileEditor
from holdfast.tools.command_snapshots import CommandSnapshots
from holdfast.tools.paths import make_temporary_name
from holdfast.tools.shadow_repository import UNCERTAIN, WAS_LINK, ShadowRepository
from holdfast.tools.terminal import TerminalTool
from holdfast.tools.write_file import WriteFileTool
from tests.engine.going_back import actions, go_back
from tests.engine.stage import Stage, set_up

pytestmark = pytest.mark.process

END = ScriptStep(say="Done.")
PATH = os.environ["PATH"]


def command(line: str) -> ScriptedCall:
    return ScriptedCall(name="terminal", arguments={"command": line})


def run(*lines: str) -> ScriptStep:
    return ScriptStep(call=tuple(command(line) for line in lines))


async def staged(
    folder: Path, stages: list[Stage], *steps: ScriptStep, path: str = PATH, max_files: int = 1000
) -> Stage:
    """An engine whose store is in the working directory, where git ignores it."""
    with (folder / ".gitignore").open("a") as file:
        file.write("holdfast.db*\nfiles\n")
    snapshots = CommandSnapshots(folder / "home", path, max_files)
    tools: list[Tool] = [TerminalTool({"PATH": PATH}, snapshots=snapshots), WriteFileTool(FileEditor())]
    stage = await set_up(folder, *steps, approvals="allow", tools=tools, snapshots=snapshots)
    stages.append(stage)
    return stage


async def result(stage: Stage, session_id: str) -> str:
    ended = [event for event in await stage.log(session_id) if isinstance(event, ToolEnded)]
    return text_of(ended[-1].parts)


async def test_promise_33_files_that_a_command_changed_go_back_and_forth(tmp_path: Path, stages: list[Stage]) -> None:
    odd = "odd [*]?\\ name\n"
    (tmp_path / ".gitattributes").write_text("* text=auto eol=lf\n*.lfs filter=lfs\n")
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    before = {"a.txt": b"one\r\ntwo\r\n", "gone.lfs": b"\0\1binary", odd: b"odd", "sub/deep.txt": b"deep"}
    (tmp_path / "sub").mkdir()
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "gone.lfs").chmod(0o600)
    (tmp_path / "ignored.txt").write_text("ignored")
    (tmp_path / "link.txt").symlink_to("a.txt")
    line = "sed -i s/one/1/ a.txt; rm gone.lfs; echo more >> odd*; echo x > sub/new.txt; echo y > ignored.txt"
    stage = await staged(tmp_path, stages, run(f"{line}; rm link.txt; sed -i s/deep/shallow/ sub/deep.txt"), END)
    session = await stage.session()
    await stage.play(session.id, "change")
    assert "more" in (tmp_path / odd).read_text()

    plan = await go_back(stage, session.id)

    assert actions(plan) == {
        "a.txt": "restore", "gone.lfs": "restore", odd: "restore", "deep.txt": "restore", "new.txt": "remove",
    }  # fmt: skip
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "gone.lfs").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ignored.txt").read_text() == "y\n", "ignored files are not covered"
    assert not (tmp_path / "sub/new.txt").exists()

    await stage.engine.rewinds.apply(await stage.engine.rewinds.plan_undo(session.id), by="ann")
    assert (tmp_path / "a.txt").read_bytes() == b"1\r\ntwo\r\n"
    assert not (tmp_path / "gone.lfs").exists()


async def test_commands_and_file_tools_at_the_same_time_are_one_history(tmp_path: Path, stages: list[Stage]) -> None:
    (tmp_path / "a.txt").write_text("0")
    (tmp_path / "b.txt").write_text("0")
    wait = "until [ -e written.txt ]; do sleep 0.02; done"
    written = ScriptedCall(name="write_file", arguments={"path": "written.txt", "content": "new"})
    both = (command(f"{wait}; echo 1 > a.txt"), command("echo 1 > b.txt"), written)
    stage = await staged(tmp_path, stages, ScriptStep(call=both), run("echo 2 > a.txt; echo 2 > b.txt"), END)
    session = await stage.session()
    await stage.play(session.id, "change")

    plan = await go_back(stage, session.id)

    assert actions(plan) == {"a.txt": "restore", "b.txt": "restore", "written.txt": "remove"}
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == "0"
    assert not (tmp_path / "home/snapshots" / session.id / command_snapshots.NOTE).exists()


async def test_a_file_that_others_changed_after_the_command_is_a_conflict(tmp_path: Path, stages: list[Stage]) -> None:
    (tmp_path / "a.txt").write_text("one")
    stage = await staged(tmp_path, stages, run("echo two > a.txt"), END)
    session = await stage.session()
    await stage.play(session.id, "change")
    (tmp_path / "a.txt").write_text("mine")

    assert actions(await go_back(stage, session.id)) == {"a.txt": "conflict"}
    assert (tmp_path / "a.txt").read_text() == "mine"


async def test_changes_of_a_command_that_was_cut_off_are_left_to_the_user(tmp_path: Path, stages: list[Stage]) -> None:
    (tmp_path / "a.txt").write_text("one")
    stage = await staged(tmp_path, stages, run("echo two > b.txt"), END, run("echo three > c.txt"), END)
    session = await stage.session()
    await stage.play(session.id, "first")
    # What a worker leaves that is killed while a command runs.
    repository = ShadowRepository(
        tmp_path / "home/snapshots" / session.id / "git", tmp_path, tmp_path / "home", PATH, 1000
    )
    note = command_snapshots.SnapshotNote("call-1", str(tmp_path), repository.take())
    command_snapshots.write_note(tmp_path / "home/snapshots" / session.id, note)
    (tmp_path / "a.txt").write_text("two")

    plan = await stage.engine.rewinds.plan(session.id)
    assert actions(plan) == {"a.txt": "conflict", "b.txt": "remove"}
    assert "cut off" in stage.engine.rewinds.preview(plan)
    await go_back(stage, session.id, force=[str(tmp_path / "a.txt")])

    assert (tmp_path / "a.txt").read_text() == "one"
    assert not (tmp_path / "b.txt").exists()


@pytest.mark.parametrize("note", [b"", b"{}", b"\xff"])
async def test_a_note_that_a_power_cut_damaged_stops_no_command_and_no_rewind(
    tmp_path: Path, stages: list[Stage], note: bytes
) -> None:
    stage = await staged(tmp_path, stages, run("echo one > a.txt"), END)
    session = await stage.session()
    folder = tmp_path / "home" / "snapshots" / session.id
    folder.mkdir(parents=True)
    (folder / "running.json").write_bytes(note)
    await stage.play(session.id, "Go on")

    assert (tmp_path / "a.txt").read_text() == "one\n"
    (folder / "running.json").write_bytes(note)
    await go_back(stage, session.id)
    assert not (tmp_path / "a.txt").exists()


async def test_a_repository_in_the_directory_is_not_touched_and_a_nested_one_not_entered(
    tmp_path: Path, stages: list[Stage]
) -> None:
    def git(*words: str, cwd: Path = tmp_path) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always")
        return subprocess.run(["git", *settings, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout

    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "nested").mkdir()
    for folder in (tmp_path, tmp_path / "nested"):
        git("init", "-q", cwd=folder)
    (tmp_path / "nested/inner.txt").write_text("one")
    git("add", "inner.txt", cwd=tmp_path / "nested")
    git("commit", "-qm", "inner", cwd=tmp_path / "nested")
    git("submodule", "add", "-q", "./nested", "sub")
    git("add", "a.txt")
    # Settings of a nested repository that would run a program.
    git("config", "core.fsmonitor", f"touch {tmp_path}/ran", cwd=tmp_path / "nested")
    stage = await staged(
        tmp_path, stages, run("echo two > a.txt; echo two > nested/inner.txt; echo two > sub/inner.txt"), END
    )
    session = await stage.session()
    index = (tmp_path / ".git/index").read_bytes()
    await stage.play(session.id, "change")

    assert (tmp_path / ".git/index").read_bytes() == index
    assert actions(await go_back(stage, session.id)) == {"a.txt": "restore"}
    assert (tmp_path / "nested/inner.txt").read_text() == (tmp_path / "sub/inner.txt").read_text() == "two\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("path", "max_files", "reason"), [("/nonexistent", 1000, "git is not installed"), (PATH, 2, "more than 2 files")]
)
async def test_where_no_snapshot_can_be_taken_the_command_runs_and_says_so(
    tmp_path: Path, stages: list[Stage], path: str, max_files: int, reason: str
) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    stage = await staged(
        tmp_path, stages, run("echo two > a"), END, run("echo three > a"), END, path=path, max_files=max_files
    )
    session = await stage.session()
    await stage.play(session.id, "change")
    assert reason in await result(stage, session.id)
    await stage.play(session.id, "again")

    assert reason not in await result(stage, session.id), "it is said once"
    assert actions(await go_back(stage, session.id, turns=2)) == {}
    assert (tmp_path / "a").read_text() == "three\n"


async def test_a_command_that_changes_too_many_files_says_so(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.tools.shadow_repository.MAX_CHANGES", 2)
    stage = await staged(tmp_path, stages, run("touch a b c"), END, run("echo 1 > a"), END)
    session = await stage.session()
    await stage.play(session.id, "many")
    assert "changed 3 files, more than 2" in await result(stage, session.id)
    await stage.play(session.id, "one")

    assert actions(await go_back(stage, session.id)) == {"a": "restore"}
    assert (tmp_path / "a").read_text() == ""


async def test_a_damaged_or_large_repository_is_replaced(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("0")
    steps = [step for number in "123" for step in (run(f"echo {number} > a.txt"), END)]
    stage = await staged(tmp_path, stages, *steps)
    session = await stage.session()
    await stage.play(session.id, "first")
    (tmp_path / "home/snapshots" / session.id / "git/index").write_bytes(b"damaged")
    await stage.play(session.id, "second")
    monkeypatch.setattr(command_snapshots, "MAX_REPOSITORY_BYTES", 1)
    await stage.play(session.id, "third")

    await go_back(stage, session.id, turns=2)
    assert (tmp_path / "a.txt").read_text() == "1\n"
    await go_back(stage, session.id)
    assert (tmp_path / "a.txt").read_text() == "0"


@pytest.mark.parametrize("uncover", ["echo > .gitignore", "rm -rf nested/.git", "mv nested/.git nested/git"])
def test_a_file_that_was_there_unseen_is_not_taken_for_a_new_one(tmp_path: Path, uncover: str) -> None:
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "nested").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "nested", check=True)
    for name in ("old.log", "changed.log", "nested/old.txt", "nested/changed.txt"):
        (tmp_path / name).write_text("there")
    repository = ShadowRepository(tmp_path / "home/git", tmp_path, tmp_path / "home", PATH, 1000)
    before = repository.take()
    for name in ("changed.log", "nested/changed.txt"):
        (tmp_path / name).write_text("changed")
    subprocess.run(["sh", "-c", uncover], cwd=tmp_path, check=True)
    changes = {Path(change.path).name: change for change in repository.compare(before, repository.take())}

    assert not {"old.log", "old.txt"} & set(changes)
    found = {"changed.log", "changed.txt"} & set(changes)
    assert found and all(changes[name].problem == UNCERTAIN for name in found)


@pytest.mark.parametrize("ignored", ["", "!sub*\n"])
@pytest.mark.parametrize("name", ["sub", "sub\nname"])
def test_no_program_of_a_nested_repository_is_run(tmp_path: Path, name: str, ignored: str) -> None:
    worktree, ran = tmp_path / "work", tmp_path / "ran"
    nested = worktree / name
    subprocess.run(["git", "init", "-q", nested], check=True)
    (nested / "file").write_text("one")
    (worktree / ".gitignore").write_text(ignored)
    for words in (("add", "."), ("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=nested, check=True)
    subprocess.run(["git", "config", "filter.x.clean", f"touch {ran}; cat"], cwd=nested, check=True)
    (nested / ".gitattributes").write_text("* filter=x\n")
    repository = ShadowRepository(tmp_path / "home/git", worktree, tmp_path / "home", PATH, 1000)
    before = repository.take()
    for text in ("two", "six"):  # a filter runs where the size is the same and the time is not
        (nested / "file").write_text(text)
        assert repository.compare(before, repository.take()) == []
    assert not ran.exists()


def test_holdfasts_home_is_left_out_whatever_is_ignored(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("!home\n!home/**\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/api-key").write_text("one")
    repository = ShadowRepository(tmp_path / "home/git", tmp_path, tmp_path / "home", PATH, 1000)
    before = repository.take()
    (tmp_path / "home/api-key").write_text("two")
    (tmp_path / "a.txt").write_text("new")

    assert [Path(change.path).name for change in repository.compare(before, repository.take())] == ["a.txt"]


def test_files_that_come_and_go_during_a_snapshot_do_not_stop_it(tmp_path: Path) -> None:
    """git gives up if a file vanishes between its listing and its reading; programs that build do that all the time."""
    worktree, stopped = tmp_path / "work", threading.Event()
    worktree.mkdir()

    def churn(name: str) -> None:
        while not stopped.wait(0.001):
            (worktree / name).write_text("x" * 1000)
            stopped.wait(0.001)
            (worktree / name).unlink()

    repository = ShadowRepository(tmp_path / "home/git", worktree, tmp_path / "home", PATH, 1000)
    before = repository.take()
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(churn, name) for name in ("a.o", "b.o")]
        try:
            snapshots = [repository.take() for _ in range(20)]
        finally:
            stopped.set()
        for one in busy:
            one.result()
    (worktree / "new.txt").write_text("new")

    assert len(snapshots) == 20
    assert [Path(change.path).name for change in repository.compare(before, repository.take())] == ["new.txt"]


def test_a_file_that_a_file_tool_is_about_to_put_in_place_is_not_covered(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("!*.tmp\n")
    (tmp_path / "sub").mkdir()
    repository = ShadowRepository(tmp_path / "home/git", tmp_path, tmp_path / "home", PATH, 1000)
    before = repository.take()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / make_temporary_name()).write_text("half")

    assert repository.compare(before, repository.take()) == []


def test_a_link_that_became_a_file_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("one")
    (tmp_path / "link").symlink_to("target")
    repository = ShadowRepository(tmp_path / "home/git", tmp_path, tmp_path / "home", PATH, 1000)
    before = repository.take()
    subprocess.run(["sed", "-i", "s/one/two/", "link"], cwd=tmp_path, check=True)

    [change] = repository.compare(before, repository.take())

    assert (Path(change.path).name, change.problem) == ("link", WAS_LINK)


def test_too_much_content_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.tools.shadow_repository.MAX_CHANGED_BYTES", 1024 * 1024 - 1)
    repository = ShadowRepository(tmp_path / "home/git", tmp_path, tmp_path / "home", PATH, 1000)
    before = repository.take()
    for name in "ab":
        (tmp_path / name).write_text(name * 512 * 1024)

    with pytest.raises(Invalid, match="MiB"):
        repository.compare(before, repository.take())


def test_the_home_and_large_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "home [x]").mkdir()
    (tmp_path / "home [x]/key").write_text("secret")
    (tmp_path / "large.bin").write_bytes(b"x" * (1024 * 1024 + 1))
    (tmp_path / "small.txt").write_text("small")
    repository = ShadowRepository(tmp_path / "home [x]/git", tmp_path, tmp_path / "home [x]", PATH, 10)
    first = repository.take()
    (tmp_path / "home [x]/key").write_text("other")
    (tmp_path / "large.bin").write_bytes(b"x")
    (tmp_path / "small.txt").write_bytes(b"x" * (1024 * 1024 + 1))
    second = repository.take()

    changes = {Path(change.path).name: change for change in repository.compare(first, second)}
    assert list(changes) == ["large.bin", "small.txt"]
    assert changes["large.bin"].problem == TOO_LARGE
    assert (changes["small.txt"].before, changes["small.txt"].problem) == (b"small", "")
    assert changes["small.txt"].after_hash == hash_content((tmp_path / "small.txt").read_bytes())
    assert (tmp_path / "home [x]/git").stat().st_mode & 0o777 == 0o700
    with pytest.raises(Unavailable, match="git"):
        ShadowRepository(tmp_path / "home [x]/other", tmp_path / "nosuch", tmp_path / "home [x]", PATH, 10).take()
