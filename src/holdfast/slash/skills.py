"""/skills: the skills of this session, and how to use one by name."""

import asyncio
from pathlib import Path

from holdfast.instructions.skill_file import Skill
from holdfast.instructions.skills import find_skills
from holdfast.model.message import Text
from holdfast.model.sanitize import one_line
from holdfast.slash.context import CommandContext
from holdfast.store.database import Transaction
from holdfast.store.repos import sessions
from holdfast.tools.skill import unknown_skill

NONE = "No skills. Add one with `holdfast skills add DIRECTORY`, or put it into .holdfast/skills of the project."
WITHOUT = "Sessions of this source use no skills; the setting [agent] rules names the sources that do."


async def skills(context: CommandContext, rest: str) -> None:
    """List the skills, or ask the model to use one."""
    if rest:
        name, _, task = rest.partition(" ")
        await use(context, await usable(context), name, task)
        return
    found = await _find(context)
    if found is None:
        context.show(WITHOUT)
        return
    context.show("\n".join(_line(skill) for skill in found) or NONE)


async def usable(context: CommandContext) -> dict[str, Skill]:
    """The skills that this session can use, by name."""
    return {skill.name: skill for skill in await _find(context) or () if not skill.refused}


async def use(context: CommandContext, found: dict[str, Skill], name: str, task: str) -> None:
    """Send a message that asks for the skill. Raises Invalid if there is none of that name."""
    if name not in found:
        raise unknown_skill(name, list(found))
    asked = f"Use the skill {name}."
    await context.say((Text(f"{asked}\n\n{task.strip()}" if task.strip() else asked),))


async def _find(context: CommandContext) -> list[Skill] | None:
    """Every skill on disk, the nearest first; None if sessions of this source have none."""
    source, workdir = context.source, context.workdir if context.source == "chat" else None
    if context.session_id is not None:
        database = context.engine.services.database
        source, workdir = await database.read(_place, context.session_id, workdir)
    if source not in context.settings.agent.rules:
        return None
    return await asyncio.to_thread(find_skills, workdir, context.settings.home)


def _place(tx: Transaction, session_id: str, default: Path | None) -> tuple[str, Path | None]:
    """The source of the session, and the directory of its project; None if that is on another machine."""
    source = sessions.get(tx, session_id).summary.source
    opened = sessions.get_opened(tx, session_id)
    if opened is None:
        return source, default
    recorded = Path(opened.workdir) if opened.workdir else default
    return source, recorded if opened.terminal != "ssh" else None


def _line(skill: Skill) -> str:
    if skill.refused:
        return f"! {one_line(str(skill.path))} is not used: {skill.refused}"
    return f"/{skill.name}  {skill.description}"
