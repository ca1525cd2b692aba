"""/agents: the tree of sub-agents of a session, and how to stop one."""

import asyncio
import json
from pathlib import Path

from holdfast.slash import registry
from tests.engine.delegation.family import family
from tests.slash.conftest import TestContext

HANG = {"task": "hang", "background": True}


async def test_sub_agents_are_listed_as_a_tree_and_one_can_be_stopped(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        context = TestContext(one.stage, tmp_path)
        await registry.run(context, "/agents")
        assert context.last == "! no session yet; your first message creates it"
        context.session_id = parent = await one.parent()
        await registry.run(context, "/agents")
        assert context.last == "No sub-agents."

        await one.delegate(parent, HANG, {"task": json.dumps([{"task": "do it"}])})
        hanging, nesting = sorted(await one.children(parent), key=lambda record: record.ended_at is not None)
        [below] = await one.children(nesting.child_id)
        await registry.run(context, "/agents")
        lines = context.last.splitlines()
        assert f"{hanging.child_id}  running, in the background: hang" in lines
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{nesting.child_id}  done: "))
        assert lines[at + 1] == f"└ {below.child_id}  done: do it"

        for line in ("/agents stop", "/agents start x", f"/agents stop {nesting.child_id}", "/agents stop hf-none"):
            await registry.run(context, line)
            assert context.last.startswith("! "), line
        await registry.run(context, f"/agents stop {hanging.child_id}")
        assert context.last == f"Stopping {hanging.child_id}."
        await asyncio.wait_for(one.until_ended(hanging.child_id), 20)
        await registry.run(context, "/agents")
        assert f"{hanging.child_id}  interrupted, in the background (a person stopped it): hang" in context.last
        await context.close()


async def test_a_prefix_that_several_running_sub_agents_have_is_ambiguous(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        context = TestContext(one.stage, tmp_path)
        context.session_id = parent = await one.parent()
        await one.delegate(parent, HANG, HANG)

        await registry.run(context, "/agents stop hf-")

        assert context.last.startswith("! 'hf-' is ambiguous: hf-")
        await one.stage.engine.actions.end(parent)
        for record in await one.children(parent):
            await asyncio.wait_for(one.until_ended(record.child_id), 20)
        await context.close()


async def test_promise_30_the_queued_result_of_a_sub_agent_is_no_message_to_edit_or_drop(tmp_path: Path) -> None:
    async with family(tmp_path, watches=False) as one:
        context = TestContext(one.stage, tmp_path)
        context.session_id = parent = await one.parent()
        await one.delegate(parent, {"task": "do it", "background": True})
        [child] = await one.children(parent)
        one.stage.engine.take_up(child.child_id)
        await asyncio.wait_for(one.until_ended(child.child_id), 20)

        for line in ("/queue edit", "/queue edit 1"):
            await registry.run(context, line)
            assert context.last.startswith("! the result of a sub-agent cannot be edited"), line
        await registry.run(context, "/queue drop")
        assert (context.last, context.line) == ("Dropped 0 queued messages.", "")
        assert await one.completions(parent) == []
        await registry.run(context, "/queue drop 1")
        await registry.run(context, "/queue")
        assert context.last == "No messages are queued."

        assert await one.completions(parent) == [child.child_id], "the log keeps it"
        await one.stage.play(parent, "do more")
        assert any("done: do it" in message.text for message in one.stage.requests[-1].messages)
        await context.close()
