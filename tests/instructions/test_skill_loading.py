"""What a skill gives the model when it is loaded: the text as listed, and files that the tools can reach."""

import os
from pathlib import Path

import msgspec
import pytest

from holdfast.instructions import skill_folder
from holdfast.instructions.skill_folder import SkillCopy
from holdfast.instructions.skill_loading import skill_loader
from holdfast.instructions.skills import load_skills
from holdfast.model.errors import Conflict
from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.tools.read_file import ReadFileTool
from holdfast.tools.skill import SkillTool
from tests.instructions.conftest import MakeSkill


def scene(workdir: Path, home: Path, **changes: object) -> ToolContext:
    """A call in a turn that has begun with the skills as they are now."""
    context = ToolContext(
        session_id="hf-1",
        turn_id="turn-1",
        call_id="call/1",
        workdir=workdir,
        files=home / "files/hf-1",
        skills=load_skills(workdir, home, None).sources,
    )
    return msgspec.structs.replace(context, **changes)


async def load(home: Path, context: ToolContext, name: str = "forms", *, max_body: int = 1_000) -> tuple[bool, str]:
    output = await SkillTool(skill_loader(home), max_body).run({"name": name}, context)
    return output.ok, text_of(output.parts)


async def test_a_skill_of_the_project_is_used_in_its_place(home: Path, project: Path, make_skill: MakeSkill) -> None:
    folder = make_skill(project / ".claude/skills", "forms", scripts__fill_sh="echo filled", notes="x")

    ok, text = await load(home, scene(project / "deep", home))

    assert ok
    assert text.endswith("\n\nDo it.")
    assert f"Relative paths in it begin in {folder}, which contains: notes, scripts/fill.sh." in text


async def test_the_files_of_a_skill_of_the_user_are_copied_to_where_tools_may_read(
    home: Path, project: Path, make_skill: MakeSkill
) -> None:
    program = make_skill(home / "skills", "forms", scripts__fill_sh="echo filled") / "scripts/fill.sh"
    program.chmod(0o755)
    context = scene(project, home)

    _, text = await load(home, context)
    _, again = await load(home, context)

    (copy,) = (context.files / "skills").iterdir()
    assert text == again and str(copy) in text
    assert (copy / "scripts/fill.sh").stat().st_mode & 0o777 == 0o700
    assert (copy / "SKILL.md").stat().st_mode & 0o777 == 0o600
    read = await ReadFileTool(home=home).run({"path": f"{copy}/scripts/fill.sh"}, context)
    assert "echo filled" in text_of(read.parts)
    refused = await ReadFileTool(home=home).run({"path": str(program)}, context)
    assert not refused.ok and "Holdfast's own directory" in text_of(refused.parts)


async def test_in_a_container_a_skill_outside_the_working_directory_is_copied(
    home: Path, project: Path, make_skill: MakeSkill
) -> None:
    make_skill(project / ".claude/skills", "forms", notes="x")

    _, text = await load(home, scene(project / "deep", home, terminal="container"))

    assert str(home / "files/hf-1/skills/forms-") in text


async def test_on_another_machine_the_text_is_loaded_without_the_files(
    home: Path, project: Path, make_skill: MakeSkill
) -> None:
    make_skill(home / "skills", "forms", notes="x")

    ok, text = await load(home, scene(project, home, terminal="ssh"))

    assert ok and text.endswith("Do it.")
    assert "Its files cannot be used: commands of this session run on another machine." in text


async def test_a_skill_that_changed_after_the_turn_began_is_not_loaded(
    home: Path, project: Path, make_skill: MakeSkill
) -> None:
    folder = make_skill(project / ".claude/skills", "forms")
    before = scene(project, home)
    make_skill(project / ".claude/skills", "forms", body="Do harm.")

    ok, text = await load(home, before)

    assert not ok
    assert f"{folder}/SKILL.md was changed after this turn began" in text
    assert await load(home, scene(project, home)) == (True, text_after(project, home, "Do harm."))
    (folder / "SKILL.md").unlink()
    assert "was removed" in (await load(home, before))[1]


def text_after(project: Path, home: Path, body: str) -> str:
    version = load_skills(project, home, None).sources[0].sha256[:12]
    return f"Skill forms, version {version}. Follow it for this task. It has no further files.\n\n{body}"


@pytest.mark.parametrize("name", ["form", "../forms", "/etc", "", "forms/../forms", "\0"])
async def test_only_a_listed_name_leads_to_a_file(home: Path, project: Path, make_skill: MakeSkill, name: str) -> None:
    make_skill(project / ".claude/skills", "forms")

    ok, text = await load(home, scene(project, home), name)

    assert not ok
    assert "The skills are: forms." in text


async def test_a_long_text_is_cut_and_says_where_the_rest_is(home: Path, project: Path, make_skill: MakeSkill) -> None:
    folder = make_skill(project / ".claude/skills", "forms", body="word " * 1_000)

    _, text = await load(home, scene(project, home))

    assert text.endswith(f"\n[cut: the text has 5,000 characters; read SKILL.md in {folder}]")
    assert len(text) < 2_000


@pytest.mark.parametrize("problem", ["link", "large", "many", "deep", "pipe"])
async def test_files_that_a_skill_may_not_have_are_not_copied_and_the_text_is_still_loaded(
    home: Path, project: Path, make_skill: MakeSkill, problem: str
) -> None:
    folder = make_skill(home / "skills", "forms", notes="x")
    match problem:
        case "link":
            (folder / "key").symlink_to("/etc/passwd")
        case "large":
            (folder / "data").write_bytes(bytes(skill_folder.MAX_TOTAL))
        case "many":
            for number in range(skill_folder.MAX_FILES + 2):
                (folder / str(number)).touch()
        case "deep":
            (folder / "/".join("abcdefghij")).mkdir(parents=True)
        case _:
            os.mkfifo(folder / "pipe")

    ok, text = await load(home, scene(project, home))

    assert ok and text.endswith("Do it.")
    assert "Its files cannot be used: " in text
    assert not (home / "files").exists()


def test_a_copy_replaces_another_whole_and_only_if_asked(tmp_path: Path, make_skill: MakeSkill) -> None:
    target = tmp_path / "home/skills/forms"
    SkillCopy(make_skill(tmp_path / "a", "forms", old="x")).save(target)
    newer = SkillCopy(make_skill(tmp_path / "b", "forms", new="x"))

    with pytest.raises(Conflict):
        newer.save(target)
    assert sorted(path.name for path in target.iterdir()) == ["SKILL.md", "old"]
    newer.save(target, replace=True)

    assert sorted(path.name for path in target.iterdir()) == ["SKILL.md", "new"]
    assert [path.name for path in target.parent.iterdir()] == ["forms"]
    assert target.stat().st_mode & 0o777 == 0o700
