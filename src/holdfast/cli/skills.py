"""`holdfast skills`: list the skills of a directory, show one, add one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli import context, render
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.cli.parsing.non_empty_types import TEXT
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.sanitize import one_line, visible

if TYPE_CHECKING:
    from holdfast.instructions.skill_file import Skill


class SkillItem(msgspec.Struct, frozen=True):
    """A skill as `--json` prints it."""

    name: str
    scope: str
    """`user` or `project`."""
    description: str
    path: str
    sha256: str
    problem: str
    """Why it is not used; empty if it is."""


class SkillListResponse(msgspec.Struct, frozen=True):
    skills: list[SkillItem]


class SkillDocument(msgspec.Struct, frozen=True):
    skill: SkillItem
    fields: Mapping[str, str]
    files: list[str]
    body: str


@click.group(cls=SuggestingGroup)
def skills() -> None:
    """List, show and add skills: instructions that the model loads when a task needs them."""


@skills.command("list")
@context.json_option
def list_(*, as_json: bool) -> None:
    """List the skills that sessions in this directory can use, and those that they cannot."""
    items = [_item(skill) for skill in _find()]
    if as_json:
        render.print_json(SkillListResponse(items))
        return
    if not items:
        context.note("no skills; add one with holdfast skills add DIRECTORY")
        return
    rows = [
        [one.name, one.scope, f"! not used: {one.problem}" if one.problem else one.description, one.path]
        for one in items
    ]
    render.print_table(["skill", "scope", "description", "path"], rows, stretch=2)


@skills.command()
@click.argument("name")
@context.json_option
def show(*, name: str, as_json: bool) -> None:
    """Show the text and the files of the skill that is used for NAME."""
    from holdfast.instructions.skill_folder import list_files

    named = [skill for skill in _find() if skill.name == name]
    if not named:
        raise NotFound(f"there is no skill {name!r} here; holdfast skills list shows all")
    skill = named[0]
    if skill.refused:
        raise Invalid(f"{one_line(str(skill.path))} is not used: {skill.refused}")
    try:
        files = list_files(Path(os.path.realpath(skill.path)).parent)
    except Invalid as e:
        context.note(f"its files cannot be used: {e}")
        files = []
    if as_json:
        render.print_json(SkillDocument(_item(skill), skill.fields, files, skill.body))
        return
    facts = [("skill", skill.name), ("version", skill.version), ("path", str(skill.path))]
    facts += [("description", skill.description), *skill.fields.items(), *(("file", name) for name in files)]
    render.print_text("\n".join(f"{key}: {one_line(value)}" for key, value in facts))
    render.print_text(f"\n{visible(skill.body)}")


@skills.command()
@click.argument("directory", type=TEXT)
@click.option("--force", is_flag=True, help="Replace the skill of that name.")
@context.json_option
def add(*, directory: str, force: bool, as_json: bool) -> None:
    """Add the skill in DIRECTORY for all your sessions, as a private copy.

    A file SKILL.md may be given instead of its directory.
    """
    from holdfast.instructions.skill_file import FILE, read_skill
    from holdfast.instructions.skill_folder import SkillCopy
    from holdfast.instructions.skills import FOLDER

    folder = Path(os.path.realpath(directory))
    folder = folder.parent if folder.name == FILE else folder
    shown = one_line(directory)
    if not folder.is_dir():
        raise NotFound(f"{shown} is not a directory; clone or download the skill first")
    skill = read_skill(folder, None)
    if skill is None:
        raise Invalid(f"{shown} is not a skill: it has no {FILE}")
    if skill.refused:
        raise Invalid(f"{shown} cannot be added: {skill.refused}")
    target = context.settings().home / FOLDER / skill.name
    try:
        SkillCopy(folder).save(target, replace=force)
    except Conflict as e:
        raise Conflict(f"there is a skill {skill.name!r}; replace it with --force") from e
    except Invalid as e:
        raise Invalid(f"{shown} cannot be added: {e}") from e
    if as_json:
        render.print_json(_item(msgspec.structs.replace(skill, path=target / FILE)))
        return
    render.print_text(f"Added the skill {skill.name} to {one_line(str(target))}; it applies from the next turn on.")


def _find() -> "list[Skill]":
    from holdfast.instructions.skills import find_skills

    return find_skills(Path.cwd(), context.settings().home)


def _item(skill: "Skill") -> SkillItem:
    from holdfast.instructions.skills import FOLDER

    scope = "user" if skill.path.is_relative_to(context.settings().home / FOLDER) else "project"
    return SkillItem(skill.name, scope, skill.description, str(skill.path), skill.sha256, skill.refused)
