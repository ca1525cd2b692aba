"""`/goal`: set, show, pause, resume and clear the goal of a session."""

import pytest

from holdfast.model.mode import LOCAL_USER
from holdfast.slash.registry import run
from tests.slash.conftest import TestContext


async def test_goal_sets_shows_pauses_and_clears_the_goal(context: TestContext) -> None:
    await run(context, "/goal")
    assert context.last.startswith("No goal.")
    await run(context, "/goal --turns 3 --cost $1.50 --hours=2 all tests pass")
    assert context.last.startswith("Goal set, with up to 3 turns.")
    await run(context, "/goal")
    assert context.last.startswith("Goal: all tests pass\nState: active, 1 of 3 turns, until ")
    assert "$1.50" in context.last
    await run(context, "/status")
    assert "all tests pass (active, 1 of 3 turns" in context.last
    await run(context, "/why")
    assert f"a goal was set by {LOCAL_USER} (all tests pass)" in context.last
    assert "next: its goal is checked" in context.last

    await run(context, "/goal pause")
    await run(context, "/goal status")
    assert "State: paused: a person paused it (1 of 3 turns" in context.last
    await run(context, "/goal resume")
    await run(context, "/goal off")
    await run(context, "/goal")
    assert "State: cleared after 1 turn: a person cleared it" in context.last
    await run(context, "/goal resume")
    assert context.last.startswith("! the goal of session")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/goal pause", "! no session yet"),
        ("/goal --turns many x", "! 'many' is not a number"),
        ("/goal --turns 0 x", "! a goal may take 1 to 1,000 turns"),
        ("/goal --hours nan x", "! a goal may take more than 0 and up to"),
        ("/goal --cost -1 x", "! a goal may cost more than 0"),
        ("/goal --tokens 5 x", "! unknown option --tokens"),
        ("/goal --turns 5", "! the goal is missing"),
        (f"/goal {'x' * 5000}", "! the goal has 5,000 characters"),
    ],
)
async def test_a_goal_that_makes_no_sense_is_refused_and_creates_nothing(
    context: TestContext, line: str, reason: str
) -> None:
    await run(context, line)

    assert context.last.startswith(reason)
    assert context.session_id is None


async def test_a_user_of_a_platform_gets_no_more_than_the_settings_allow(context: TestContext) -> None:
    context.user = "telegram:42"
    await run(context, "/goal --turns 21 x")
    assert context.last == "! this agent allows goals of at most 20 turns; got 21"
    await run(context, "/goal --turns 2 x")
    assert context.last.startswith("Goal set, with up to 2 turns.")
