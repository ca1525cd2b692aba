"""/skills and /NAME: list the skills, and ask the model to use one."""

from pathlib import Path

import msgspec
import pytest

from holdfast.model.event import UserSaid
from holdfast.model.message import text_of
from holdfast.slash import registry
from tests.slash.conftest import TestContext


def write_skill(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\n")


async def said(context: TestContext) -> list[str]:
    assert context.session_id is not None
    return [
        text_of(event.parts) for event in await context.stage.log(context.session_id) if isinstance(event, UserSaid)
    ]


async def test_skills_are_listed_before_and_after_the_first_message(context: TestContext) -> None:
    await registry.run(context, "/skills")
    assert context.last.startswith("No skills. ")

    write_skill(context.workdir / ".claude/skills", "forms")
    write_skill(context.workdir / ".claude/skills", "Bad")
    await registry.run(context, "/skills")
    before = context.last
    await context.say_text("hi")
    await registry.run(context, "/skills")

    assert before == context.last
    assert before.splitlines()[1] == "/forms  Does forms."
    assert before.startswith(f"! {context.workdir}/.claude/skills/Bad/SKILL.md is not used: 'Bad' is not a name")


async def test_a_skill_can_be_asked_for_by_its_name(context: TestContext) -> None:
    write_skill(context.workdir / "skills", "forms")

    await registry.run(context, "/skills forms the tax form")
    await registry.run(context, "/forms")

    assert await said(context) == ["Use the skill forms.\n\nthe tax form", "Use the skill forms."]


async def test_an_unknown_skill_and_a_built_in_name_are_no_skill(context: TestContext) -> None:
    write_skill(context.workdir / "skills", "forms")
    write_skill(context.workdir / "skills", "ps")

    await registry.run(context, "/skills form")
    assert context.last == "! There is no skill called 'form'. Did you mean forms? The skills are: forms, ps."
    await registry.run(context, "/form")
    assert "/forms" in context.last

    assert context.session_id is None


@pytest.mark.parametrize("line", ["/skills", "/skills forms", "/forms"])
async def test_where_rules_are_off_nothing_of_the_host_is_shown(context: TestContext, line: str) -> None:
    write_skill(context.workdir / "skills", "forms")
    agent = msgspec.structs.replace(context.settings.agent, rules=("chat",))
    context.settings = msgspec.structs.replace(context.settings, agent=agent)
    context.source = "gateway"

    await registry.run(context, line)

    assert "Does forms" not in context.last
    assert context.session_id is None
