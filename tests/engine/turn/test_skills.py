"""What the model receives of skills: a list in the system text, and a text only when it asks for it."""

from collections.abc import Callable
from pathlib import Path

from holdfast.instructions.skill_loading import skill_loader
from holdfast.instructions.skills import load_skills
from holdfast.model.event import Event, InstructionsLoaded, ToolEnded
from holdfast.model.instructions import InstructionsRequest, LoadInstructions, changed_parts
from holdfast.model.message import ToolResult, text_of
from holdfast.model.provider import ModelRequest
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.tools.skill import SkillTool
from tests.engine.stage import Stage, set_up

LOAD = ScriptStep(call=(ScriptedCall("skill", {"name": "forms"}),))
SAY = ScriptStep(say="done")


def write_skill(folder: Path, body: str) -> Path:
    skill = folder / ".claude/skills/forms"
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text(f"---\nname: forms\ndescription: Fills forms.\n---\n{body}")
    return skill / "SKILL.md"


def reading(folder: Path, *, meanwhile: Callable[[], object] = lambda: None) -> LoadInstructions:
    """Loads the skills of the directory; then `meanwhile` happens."""

    async def load(request: InstructionsRequest) -> list[InstructionsLoaded]:
        part = load_skills(folder, folder / "home", request.recorded.get("skills"))
        meanwhile()
        return changed_parts(request.turn_id, request.recorded, [part])

    return load


async def prepare(folder: Path, *steps: ScriptStep, **options: object) -> tuple[Stage, str]:
    tool = SkillTool(skill_loader(folder / "home"))
    options = {"instructions": reading(folder)} | options
    stage = await set_up(folder, *steps, tools=[tool], **options)  # type: ignore[arg-type]
    return stage, (await stage.session(source="chat")).id


def results(request: ModelRequest) -> list[str]:
    """The results of tools that the model is shown."""
    return [
        text_of(part.parts) for message in request.messages for part in message.parts if isinstance(part, ToolResult)
    ]


def offered(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.tools if tool.name == "skill"]


def endings(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.outcome, text_of(event.parts)) for event in events if isinstance(event, ToolEnded)]


async def test_the_model_sees_the_description_and_gets_the_text_by_a_call(tmp_path: Path) -> None:
    write_skill(tmp_path, "Use black ink.")
    stage, session_id = await prepare(tmp_path, LOAD, SAY)

    events = await stage.play(session_id, "fill the form")

    before, after = stage.requests
    assert "Fills forms." in before.system and "Use black ink." not in before.system
    assert offered(before) == ["skill"]
    assert results(before) == [] and results(after)[0].endswith("\n\nUse black ink.")
    assert endings(events) == [("ok", results(after)[0])]
    assert before.system == after.system


async def test_without_skills_the_model_has_no_tool_for_them(tmp_path: Path) -> None:
    stage, session_id = await prepare(tmp_path, SAY, SAY)

    await stage.play(session_id, "hi")
    write_skill(tmp_path, "Use black ink.")
    await stage.play(session_id, "hi")

    assert [offered(request) for request in stage.requests] == [[], ["skill"]]
    assert "# Skills" not in stage.requests[0].system


async def test_a_session_whose_source_has_no_rules_has_no_skills(tmp_path: Path) -> None:
    write_skill(tmp_path, "Use black ink.")
    stage, session_id = await prepare(tmp_path, SAY, instructions=None)

    await stage.play(session_id, "hi")

    assert "# Skills" not in stage.requests[0].system


async def test_a_change_reaches_the_model_at_the_next_turn_and_not_in_the_middle_of_one(tmp_path: Path) -> None:
    write_skill(tmp_path, "Use black ink.")
    turns = iter(range(3))

    def change_in_second_turn() -> None:
        if next(turns) == 1:
            write_skill(tmp_path, "Use blue ink.")

    stage, session_id = await prepare(
        tmp_path,
        *(LOAD, SAY, LOAD, SAY, LOAD, SAY),
        instructions=reading(tmp_path, meanwhile=change_in_second_turn),
    )

    played = [await stage.play(session_id, "fill the form") for _ in range(3)]

    outcomes = [endings(events)[0] for events in played]
    assert outcomes[0][1].endswith("Use black ink.")
    assert outcomes[1][0] == "failed" and "was changed after this turn began" in outcomes[1][1]
    assert outcomes[2][1].endswith("Use blue ink.")
    systems = [request.system for request in stage.requests]
    assert systems[0] == systems[3] and systems[3] != systems[4]
    assert [event.notices for events in played for event in events if isinstance(event, InstructionsLoaded)] == [
        ("forms",),
        ("forms was changed; it applies from this turn on",),
    ]


async def test_a_resumed_session_sees_the_bytes_that_were_loaded(tmp_path: Path) -> None:
    path = write_skill(tmp_path, "Use black ink.")
    first, session_id = await prepare(tmp_path, LOAD, SAY)
    await first.play(session_id, "fill the form")
    path.unlink()

    second = await set_up(
        tmp_path,
        SAY,
        database=first.database,
        instructions=reading(tmp_path),
        tools=[SkillTool(skill_loader(tmp_path))],
    )
    events = await second.play(session_id, "go on")

    assert results(second.requests[0]) == results(first.requests[1])
    assert [event.notices for event in events if isinstance(event, InstructionsLoaded)] == [("forms no longer exists",)]
    assert "# Skills" not in second.requests[0].system
