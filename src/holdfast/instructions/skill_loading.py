"""Loads a skill for the model: its text as listed, and its files where the tools of the session can reach them.

Tools cannot use Holdfast's home, so the files of the user's own skills are copied into the directory of the session,
which every backend shows. The copy is named by its content and stays: a resumed session finds the same files.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from holdfast.instructions.skill_file import Skill, read_skill
from holdfast.instructions.skill_folder import SkillCopy, list_files
from holdfast.instructions.skills import FOLDER, listed_skills
from holdfast.model.errors import Conflict, Invalid, NotSaved
from holdfast.model.event import InstructionSource
from holdfast.model.tool import ToolContext
from holdfast.tools.skill import LoadedSkill, LoadSkill, unknown_skill

ON_THIS_MACHINE = ("local", "bubblewrap")
"""Backends in which commands see the files of this machine."""
COPY_VERSION = 12


def skill_loader(home: Path) -> LoadSkill:
    """The function that loads a skill. `home` is Holdfast's own directory."""

    def load(name: str, context: ToolContext) -> LoadedSkill:
        listed = listed_skills(context.skills)
        if name not in listed:
            raise unknown_skill(name, list(listed))
        skill = _read_as_listed(listed[name])
        if context.terminal == "ssh":
            return _loaded(skill, problem="commands of this session run on another machine")
        real = Path(os.path.realpath(skill.path)).parent
        if skill.path.is_relative_to(home / FOLDER) or not _is_visible(real, context):
            return _copied(skill, context.files / FOLDER)
        return _with_files(skill, lambda: (real, list_files(real)))

    return load


def _read_as_listed(source: InstructionSource) -> Skill:
    """The skill with the content that was listed. Raises Invalid if it has another one now."""
    skill = read_skill(Path(source.path).parent, None)
    if skill is None or skill.sha256 != source.sha256:
        change = "was removed" if skill is None else "was changed"
        raise Invalid(
            f"{source.path} {change} after this turn began. What it says now applies from the next turn on; "
            "continue without this skill, or tell the user."
        )
    return skill


def _is_visible(folder: Path, context: ToolContext) -> bool:
    return context.terminal in ON_THIS_MACHINE or folder.is_relative_to(os.path.realpath(context.workdir))


def _copied(skill: Skill, target: Path) -> LoadedSkill:
    def copy() -> tuple[Path, list[str]]:
        found = SkillCopy(skill.path.parent)
        place = target / f"{skill.name}-{found.digest[:COPY_VERSION]}"
        with contextlib.suppress(Conflict):  # an earlier call has made it
            found.save(place)
        return place, found.names

    return _with_files(skill, copy)


def _with_files(skill: Skill, find: Callable[[], tuple[Path, list[str]]]) -> LoadedSkill:
    try:
        folder, names = find()
    except (Invalid, NotSaved) as e:
        return _loaded(skill, problem=str(e))
    return LoadedSkill(
        name=skill.name, version=skill.version, path=skill.path, body=skill.body, folder=folder, files=tuple(names)
    )


def _loaded(skill: Skill, *, problem: str) -> LoadedSkill:
    return LoadedSkill(name=skill.name, version=skill.version, path=skill.path, body=skill.body, problem=problem)
