"""Gives the model the text of a skill that the system text lists."""

import asyncio
import difflib
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.instructions import SKILL_TOOL
from holdfast.model.sanitize import one_line
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.spec import load_spec

MAX_BODY = 48 * 1024
"""Characters of a skill's text that the model is shown."""
MAX_NAMES = 50
"""Files that are named."""


class LoadedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a skill and where its files are."""

    name: str
    version: str
    path: Path
    """Of its `SKILL.md`."""
    body: str
    folder: Path | None = None
    """Where the tools of the session find its files; None if it has none."""
    files: tuple[str, ...] = ()
    problem: str = ""
    """Why its files cannot be used."""


LoadSkill = Callable[[str, ToolContext], LoadedSkill]
"""Loads a listed skill by its name. Raises Invalid, with text for the model, for one that is unknown or has changed."""


class SkillTool:
    repeatable = True
    spec = load_spec(
        SKILL_TOOL, {"name": {"type": "string", "description": "The name in the list of skills."}}, ("name",)
    )

    def __init__(self, load: LoadSkill, max_body: int = MAX_BODY) -> None:
        self._load = load
        self._max_body = max_body

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        try:
            found = await asyncio.to_thread(self._load, str(arguments["name"]).strip(), context)
        except Invalid as e:
            return ToolOutput.say(str(e), ok=False)
        return ToolOutput.say("\n\n".join([_describe(found), self._body(found)]))

    def _body(self, found: LoadedSkill) -> str:
        if len(found.body) <= self._max_body:
            return found.body or "(The skill has no text besides its description.)"
        rest = f"read {found.path.name} in {found.folder}" if found.folder else "the rest cannot be shown"
        return f"{found.body[: self._max_body]}\n[cut: the text has {len(found.body):,} characters; {rest}]"


def _describe(found: LoadedSkill) -> str:
    """The line above the text: the version, and where relative paths lead."""
    line = f"Skill {found.name}, version {found.version}. Follow it for this task."
    if found.problem:
        return f"{line} Its files cannot be used: {found.problem}."
    if found.folder is None or not found.files:
        return f"{line} It has no further files."
    more = f" and {len(found.files) - MAX_NAMES} more" if len(found.files) > MAX_NAMES else ""
    names = ", ".join(map(one_line, found.files[:MAX_NAMES]))
    return f"{line} Relative paths in it begin in {one_line(str(found.folder))}, which contains: {names}{more}."


def unknown_skill(name: str, known: list[str]) -> Invalid:
    """The error for a name that is not listed, with similar ones."""
    similar = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
    return Invalid(f"There is no skill called {name[:100]!r}.{hint} The skills are: {', '.join(known) or 'none'}.")
