"""The plan that the model keeps: durable with the result of the call, and in view after a compaction."""

import asyncio
from pathlib import Path

import pytest

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.model.errors import Invalid
from holdfast.model.event import Compacted, Event, PlanChanged, ToolEnded
from holdfast.model.message import Part, Text, ToolCall, text_of
from holdfast.model.plan import PlanItem
from holdfast.model.provider import ModelRequest
from holdfast.model.tool import ToolContext
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import plans, workers
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tools.todo import MAX_CHARS, MAX_ITEMS, TodoTool
from holdfast.tools.toolbox import Toolbox
from tests.engine.counting_model import Reader, newest
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase

PLAN = (PlanItem(content="Dig", status="completed"), PlanItem(content="Plant", status="in_progress"))
ITEMS = [{"content": item.content, "status": item.status} for item in PLAN]
SCRIPT = (ScriptStep(call=(ScriptedCall("todo", {"items": ITEMS}),)), ScriptStep(say="Planned."))


async def planned(stage: Stage, session_id: str) -> tuple[PlanItem, ...]:
    return await stage.database.read(plans.current, session_id)


async def test_the_plan_is_committed_with_the_result_of_the_call(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, *SCRIPT, tools=[TodoTool()])
    session = await stage.session()
    events = await stage.play(session.id, "Plan the garden")

    kinds = [type(event) for event in events]
    changed = next(event for event in events if isinstance(event, PlanChanged))
    result = next(event for event in events if isinstance(event, ToolEnded))
    assert kinds.index(PlanChanged) == kinds.index(ToolEnded) + 1
    assert (changed.items, changed.call_id) == (PLAN, result.call_id)
    assert text_of(result.parts) == "The plan is saved: 1 of 2 completed."
    assert await planned(stage, session.id) == PLAN
    await stage.engine.close()
    await stage.database.close()


@pytest.mark.parametrize("nth", range(3, 9))
async def test_a_crash_at_any_commit_leaves_the_plan_exactly_if_its_result_is_in_the_log(
    tmp_path: Path, nth: int
) -> None:
    inner = await open_sqlite(tmp_path / "holdfast.db")
    stage = await set_up(tmp_path, *SCRIPT, database=inner, tools=[TodoTool()])
    object.__setattr__(stage.engine.services, "database", CrashingDatabase(inner, nth, "after"))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    session_id = (await stage.session()).id
    try:
        async with asyncio.timeout(20):
            await stage.play(session_id, "Plan the garden")
    except Crash:
        pass
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await inner.close()

    stage2 = await set_up(tmp_path, *SCRIPT, ScriptStep(say="Yes."), ScriptStep(say="Yes."), tools=[TodoTool()])
    events = await stage2.log(session_id)
    assert (await planned(stage2, session_id) == PLAN) == any(isinstance(event, ToolEnded) for event in events)
    await stage2.database.write(workers.mark_dead, stage.worker_id, "killed", at=1)
    await stage2.play(session_id, "Are you there?")

    assert_well_formed(await stage2.log(session_id))
    assert await planned(stage2, session_id) in (PLAN, ())
    await stage2.engine.close()
    await stage2.database.close()


def plan_first(request: ModelRequest) -> tuple[Part, ...]:
    """Sets a plan in the first turn, and talks in the others."""
    if request.messages[-1].role == "tool" or not newest(request).startswith("Plan"):
        return (Text("Noted. " + "I shall think about it. " * 20),)
    return (ToolCall("call-plan", "todo", '{"items": [{"content": "Dig the pond", "status": "in_progress"}]}'),)


def shown(reader: Reader) -> str:
    return "\n".join(text_of(message.parts) for message in reader.shown[-1].messages)


async def test_the_model_sees_its_plan_after_every_compaction(tmp_path: Path) -> None:
    reader = Reader(4_000, plan_first)
    compacting: CompactionSettings = reader.compacting()
    stage = await set_up(tmp_path, ask=reader.ask, tools=[TodoTool()], compacting=compacting)
    session = await stage.session()
    events: list[Event] = await stage.play(session.id, "Plan the garden")
    for number in range(60):
        events += await stage.play(session.id, f"Turn {number} " + "about the garden and the rain " * 8)
    compactions = [event for event in events if isinstance(event, Compacted) and event.upto_seq]

    assert len(compactions) > 1
    assert all([item.content for item in event.plan] == ["Dig the pond"] for event in compactions)
    assert "Your plan at that point" in shown(reader)
    assert "[>] Dig the pond" in shown(reader)
    await stage.engine.close()
    await stage.database.close()


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([{"content": " \n", "status": "pending"}], "step 1 has no text"),
        ([{"content": "x" * (MAX_CHARS + 1), "status": "pending"}], "has 201 characters"),
        ([{"content": "x", "status": "pending"}] * (MAX_ITEMS + 1), "it has 31 steps"),
    ],
)
async def test_a_list_that_cannot_be_a_plan_changes_nothing(
    scene: ToolContext, items: list[dict[str, str]], problem: str
) -> None:
    output = await TodoTool().run({"items": items}, scene)

    assert not output.ok
    assert output.plan is None
    assert problem in text_of(output.parts)


@pytest.mark.parametrize("arguments", ['{"items": [{"content": "a", "status": "done"}]}', '{"items": ["a"]}', "{}"])
def test_malformed_items_are_explained(arguments: str) -> None:
    with pytest.raises(Invalid, match="todo takes: items"):
        Toolbox([TodoTool()]).parse("todo", arguments)


async def test_line_breaks_and_control_characters_do_not_get_into_the_plan(scene: ToolContext) -> None:
    output = await TodoTool().run({"items": [{"content": "a\n\x1b[31mb", "status": "pending"}]}, scene)

    assert output.plan == (PlanItem(content="a [31mb"),)
