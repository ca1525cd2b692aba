"""Promise 33: files can be taken back with the conversation, also after a crash."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.event import FilesRestored, Rewound
from holdfast.model.file_change import MAX_IMAGE_BYTES
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import file_changes, workers
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tools.atomic_replace import FileEditor
from holdfast.tools.edit_file import EditFileTool
from holdfast.tools.write_file import WriteFileTool
from tests.engine.going_back import actions, go_back
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.counting import CountingDatabase
from tests.fakes.crashing import Crash, CrashingDatabase

END = ScriptStep(say="Done.")


def write(path: str, content: str) -> ScriptStep:
    return ScriptStep(call=(ScriptedCall(name="write_file", arguments={"path": path, "content": content}),))


def edit(path: str, old: str, new: str) -> ScriptStep:
    return ScriptStep(call=(ScriptedCall(name="edit_file", arguments={"path": path, "old": old, "new": new}),))


async def staged(folder: Path, stages: list[Stage], *steps: ScriptStep) -> Stage:
    editor = FileEditor()
    stage = await set_up(folder, *steps, tools=[WriteFileTool(editor), EditFileTool(editor)])
    stages.append(stage)
    return stage


async def test_promise_33_files_and_conversation_go_back_together_and_the_files_forth_again(
    tmp_path: Path, stages: list[Stage]
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "a.txt").chmod(0o750)
    steps = (edit("a.txt", "one", "two"), write("new/deep/b.txt", "b"), END, edit("a.txt", "two", "three"), END)
    stage = await staged(tmp_path, stages, *steps)
    session = await stage.session()
    await stage.play(session.id, "first")
    await stage.play(session.id, "second")

    plan = await stage.engine.rewinds.plan(session.id, turns=2)
    preview = stage.engine.rewinds.preview(plan)
    assert "-three\n+one" in preview and "remove" in preview and "-b" in preview
    assert (tmp_path / "a.txt").read_text() == "three\n", "a preview changes nothing"
    await stage.engine.rewinds.apply(plan, by="ann")

    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o750
    assert not (tmp_path / "new").exists(), "the directories that were made for the file are gone"
    log = await stage.log(session.id)
    restored = next(event for event in log if isinstance(event, FilesRestored))
    assert (len(restored.files), restored.conversation, restored.by) == (2, True, "ann")
    assert any(isinstance(event, Rewound) for event in log)
    assert_well_formed(log)

    await stage.engine.rewinds.apply(await stage.engine.rewinds.plan_undo(session.id), by="ann")
    assert (tmp_path / "a.txt").read_text() == "three\n"
    assert (tmp_path / "new/deep/b.txt").read_text() == "b"

    await stage.engine.rewinds.apply(await stage.engine.rewinds.plan_undo(session.id), by="ann")
    assert (tmp_path / "a.txt").read_text() == "one\n", "an undo can be undone"


async def test_only_the_files_or_only_the_conversation_go_back(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await staged(tmp_path, stages, write("a.txt", "new"), END, END)
    session = await stage.session()
    await stage.play(session.id, "write")

    await go_back(stage, session.id, conversation=False)
    assert not (tmp_path / "a.txt").exists()
    assert not any(isinstance(event, Rewound) for event in await stage.log(session.id))
    await stage.play(session.id, "go on")
    assert any("restored these files" in message.text for message in stage.requests[-1].messages)

    await go_back(stage, session.id, turns=2, files=False)
    assert any(isinstance(event, Rewound) for event in await stage.log(session.id))


async def test_a_message_number_goes_back_before_its_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await staged(tmp_path, stages, write("a.txt", "1"), END, write("a.txt", "2"), END)
    session = await stage.session()
    await stage.play(session.id, "first")
    middle = (await stage.engine.read(session.id))[0].seq
    await stage.play(session.id, "second")

    await go_back(stage, session.id, message=middle + 2)

    assert (tmp_path / "a.txt").read_text() == "1"
    with pytest.raises(Invalid, match="no turn"):
        await stage.engine.rewinds.plan(session.id, message=999)
    with pytest.raises(Invalid, match="no turn"):  # it was taken back, and the turn before it was not
        await stage.engine.rewinds.plan(session.id, message=middle + 2)


async def test_a_file_that_others_changed_is_skipped_unless_it_is_forced(tmp_path: Path, stages: list[Stage]) -> None:
    (tmp_path / "a.txt").write_text("one")
    stage = await staged(tmp_path, stages, write("a.txt", "two"), END)
    session = await stage.session()
    await stage.play(session.id, "write")
    (tmp_path / "a.txt").write_text("mine")

    plan = await go_back(stage, session.id, conversation=False)
    assert actions(plan) == {"a.txt": "conflict"}
    assert "-mine\n" in stage.engine.rewinds.preview(plan) and "unless forced" in stage.engine.rewinds.preview(plan)
    assert (tmp_path / "a.txt").read_text() == "mine"

    await go_back(stage, session.id, conversation=False, force=[str(tmp_path / "a.txt")])
    assert (tmp_path / "a.txt").read_text() == "one"
    await stage.engine.rewinds.apply(await stage.engine.rewinds.plan_undo(session.id), by="ann")
    assert (tmp_path / "a.txt").read_text() == "mine", "what was overwritten was stored first"


async def test_a_file_name_cannot_imitate_a_line_of_the_preview(tmp_path: Path, stages: list[Stage]) -> None:
    for name in ("a\nremove b.txt", "c\n= d.txt"):
        (tmp_path / name).write_text("one")
    stage = await staged(tmp_path, stages, write("a\nremove b.txt", "two"), write("c\n= d.txt", "two"), END)
    session = await stage.session()
    await stage.play(session.id, "write")
    (tmp_path / "c\n= d.txt").write_text("mine")

    plan = await stage.engine.rewinds.plan(session.id, conversation=False)
    lines = stage.engine.rewinds.preview(plan).splitlines()

    assert f"restore {tmp_path}/a\\nremove b.txt" in lines
    assert not [line for line in lines if line.startswith(("remove b.txt", "= d.txt"))]


async def test_a_change_of_others_between_two_of_ours_is_a_conflict(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await staged(tmp_path, stages, write("a.txt", "1"), END, edit("a.txt", "x", "y"), END)
    session = await stage.session()
    await stage.play(session.id, "first")
    (tmp_path / "a.txt").write_text("x by hand")
    await stage.play(session.id, "second")

    assert actions(await stage.engine.rewinds.plan(session.id, turns=2)) == {"a.txt": "conflict"}
    assert actions(await stage.engine.rewinds.plan(session.id, turns=1)) == {"a.txt": "restore"}


async def test_a_file_that_changes_after_the_preview_is_not_overwritten(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await staged(tmp_path, stages, write("a.txt", "1"), END)
    session = await stage.session()
    await stage.play(session.id, "first")
    plan = await stage.engine.rewinds.plan(session.id)
    (tmp_path / "a.txt").write_text("by hand")

    result = await stage.engine.rewinds.apply(plan, by="ann")

    assert "was changed meanwhile" in result.failed[str(tmp_path / "a.txt")]
    assert (tmp_path / "a.txt").read_text() == "by hand"


async def test_links_deleted_binary_and_large_files(tmp_path: Path, stages: list[Stage]) -> None:
    (tmp_path / "target.txt").write_text("one")
    (tmp_path / "link.txt").symlink_to("target.txt")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "large.txt").write_text("x" * (MAX_IMAGE_BYTES + 1))
    names = ("link.txt", "binary", "large.txt", "gone.txt", "swapped.txt")
    stage = await staged(tmp_path, stages, *(write(name, "new") for name in names), END)
    session = await stage.session()
    await stage.play(session.id, "write")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "swapped.txt").unlink()
    (tmp_path / "swapped.txt").symlink_to("target.txt")

    plan = await go_back(stage, session.id)

    assert actions(plan) == {
        "target.txt": "restore",
        "binary": "restore",
        "large.txt": "skip",
        "gone.txt": "keep",
        "swapped.txt": "skip",
    }
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "target.txt").read_text() == "one"
    assert (tmp_path / "binary").read_bytes() == bytes(range(256))
    assert (tmp_path / "swapped.txt").is_symlink()
    assert next(step.reason for step in plan.steps if step.path.endswith("large.txt")).startswith("it was larger than")


async def test_a_directory_replaced_by_a_link_leads_nowhere_else(tmp_path: Path, stages: list[Stage]) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "dir/a.txt").write_text("one")
    stage = await staged(tmp_path, stages, write("dir/a.txt", "two"), END)
    session = await stage.session()
    await stage.play(session.id, "write")
    (tmp_path / "dir/a.txt").rename(tmp_path / "other/a.txt")
    (tmp_path / "dir").rmdir()
    (tmp_path / "dir").symlink_to("other")

    assert actions(await go_back(stage, session.id)) == {"a.txt": "skip"}
    assert (tmp_path / "other/a.txt").read_text() == "two"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 7))
async def test_promise_33_a_crash_at_any_commit_of_a_change_loses_no_earlier_content(
    tmp_path: Path, nth: int, when: Literal["before", "after"], stages: list[Stage]
) -> None:
    (tmp_path / "a.txt").write_text("one")
    inner = await open_sqlite(tmp_path / "holdfast.db")
    stage = await set_up(tmp_path, write("a.txt", "two"), END, database=inner, tools=[WriteFileTool(FileEditor())])
    session = await stage.session()
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(inner, nth, when))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    try:
        async with asyncio.timeout(20):
            await stage.play(session.id, "write")
    except Crash:
        pass
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await inner.write(workers.mark_dead, stage.worker_id, "killed", at=1)

    stages.append(other := await set_up(tmp_path, *[END] * 3, database=inner))
    if (await other.engine.read(session.id))[0].summary.turn_count == 0:
        return  # it died before the message was acknowledged
    await go_back(other, session.id)

    assert (tmp_path / "a.txt").read_text() == "one"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_promise_33_a_crash_between_the_event_and_the_files_is_completed_by_the_same_rewind(
    tmp_path: Path, when: Literal["before", "after"], stages: list[Stage]
) -> None:
    (tmp_path / "a.txt").write_text("one")
    stage = await staged(tmp_path, stages, write("a.txt", "two"), END)
    session = await stage.session()
    await stage.play(session.id, "write")
    plan = await stage.engine.rewinds.plan(session.id, conversation=False)
    inner = stage.database
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(inner, 1, when))
    with pytest.raises(Crash):
        await stage.engine.rewinds.apply(plan, by="ann")
    object.__setattr__(stage.engine.services, "database", inner)
    assert (tmp_path / "a.txt").read_text() == "two"

    await go_back(stage, session.id, conversation=False)

    assert (tmp_path / "a.txt").read_text() == "one"


async def test_old_contents_are_dropped_at_the_limit_and_reported(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_changes, "MAX_SESSION_IMAGES", 1)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    stage = await staged(tmp_path, stages, write("a.txt", "new"), write("b.txt", "new"), END)
    session = await stage.session()
    await stage.play(session.id, "write")

    plan = await go_back(stage, session.id)

    assert actions(plan) == {"a.txt": "skip", "b.txt": "restore"}
    assert (await stage.database.read(file_changes.get_totals))[0] == 3


async def test_only_the_contents_that_would_be_restored_are_read(tmp_path: Path, stages: list[Stage]) -> None:
    steps = [write("a.txt", str(n)) for n in range(5)]
    stage = await staged(tmp_path, stages, write("b.txt", "b"), *steps, END)
    (tmp_path / "b.txt").write_text("earlier")
    session = await stage.session()
    await stage.play(session.id, "write")
    counting = CountingDatabase(stage.database)
    object.__setattr__(stage.engine.services, "database", counting)

    plan = await stage.engine.rewinds.plan(session.id)

    assert actions(plan) == {"a.txt": "remove", "b.txt": "restore"}
    assert counting.reads.statements["file_changes.get_image"] == 2
