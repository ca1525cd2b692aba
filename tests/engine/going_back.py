"""Rewind the files of a session, for the tests of rewinds and of snapshots."""

from pathlib import Path

from holdfast.engine.rewinds import RewindPlan
from tests.engine.stage import Stage


async def go_back(stage: Stage, session_id: str, **options: object) -> RewindPlan:
    plan = await stage.engine.rewinds.plan(session_id, **options)  # type: ignore[arg-type]
    result = await stage.engine.rewinds.apply(plan, by="ann")
    assert result.failed == {}
    return plan


def actions(plan: RewindPlan) -> dict[str, str]:
    return {Path(step.path).name: step.action for step in plan.steps}
