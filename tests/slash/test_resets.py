"""`/new` with processes running, `/ps`, and undoing a reset."""

import os
import re
from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.engine.reset.policy import ResetPolicies, ResetPolicy
from holdfast.engine.reset.reset import NEVER
from holdfast.model.event import ProcessesLeft
from holdfast.process_lookup import current_identity
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.slash.context import RunningProcess
from holdfast.slash.registry import run
from holdfast.store.repos import processes, sessions
from tests.engine.stage import with_resets
from tests.slash.conftest import TestContext

pytestmark = pytest.mark.process


@pytest.fixture
async def working(context: TestContext, tmp_path: Path) -> AsyncIterator[str]:
    """The id of a process of the current session."""
    services = context.engine.services
    limits = ProcessLimits(ttl_seconds=7200, output_bytes=1 << 20)
    environment = {"PATH": os.environ["PATH"]}
    registry = ProcessRegistry(services.database, services.clock, current_identity(), tmp_path, environment, limits)
    context.engine = with_resets(context.engine, NEVER, registry)
    await context.say_text("Hello")
    process = await registry.start("sleep 300", tmp_path, context.session_id or "")
    context.running = [RunningProcess(process.id, "sleep 300")]
    yield process.id
    for one in await services.database.read(processes.list_live):
        await registry.stop(one, "the test is over", grace_seconds=0)


@pytest.mark.parametrize(("answer", "action"), [("stop", "stop"), ("keep", "keep"), ("move", "hand_over")])
@pytest.mark.parametrize("typed", [True, False])
async def test_new_handles_the_processes_as_the_user_chooses(
    context: TestContext, working: str, answer: str, action: str, typed: bool
) -> None:
    old = context.session_id or ""
    context.answer = None if typed else answer

    await run(context, f"/new {answer} Tidy" if typed else "/new Tidy")

    new, _ = await context.engine.read(context.session_id or "")
    left = [event for event in await context.stage.log(old) if isinstance(event, ProcessesLeft)]
    process = await context.stage.database.read(processes.get, working)
    assert (new.id != old, new.summary.title) == (True, "Tidy")
    assert [(one.action, one.processes) for one in left] == [(action, (working,))]
    assert (process.ended_at is not None, process.session_id == new.id) == (answer == "stop", answer == "move")
    assert (await context.engine.read(old))[0].summary.end_reason == "session_reset"


async def test_a_new_session_can_be_undone(context: TestContext, working: str) -> None:
    old = context.session_id or ""
    await run(context, "/new keep")
    new = context.session_id or ""

    await run(context, "/undo-reset")

    assert context.session_id == old
    assert context.last == f"Back in session {old}. The messages since the reset are kept in {new}."
    session = await context.stage.database.read(sessions.get, old)
    assert (session.state, session.owner_worker) == ("waiting", context.stage.worker_id)


async def test_without_a_reset_undo_says_so(context: TestContext) -> None:
    await context.say_text("Hello")

    await run(context, "/undo-reset")

    assert "nothing to undo" in context.last


async def test_ps_inspects_the_processes_again(context: TestContext, working: str) -> None:
    await run(context, "/ps")

    seen = await context.stage.database.read(processes.get, working)
    assert seen.track.newest.members == 1
    assert working in context.last


async def test_ps_says_that_others_have_processes_too(context: TestContext, working: str) -> None:
    await run(context, "/new keep")
    context.running = []

    await run(context, "/ps")

    assert context.last == "(1 more in other sessions; see 'holdfast ps')"


@pytest.mark.parametrize("command", ["/status", "/why"])
async def test_status_and_why_say_when_a_reset_is_due(context: TestContext, command: str) -> None:
    await context.say_text("Hello")
    policy = ResetPolicy("idle", 120, 6, UTC)
    policies = ResetPolicies(NEVER.default, {"cli": policy})
    explain = replace(context.engine.explain, policies=policies)
    context.engine = with_resets(context.engine, policies, None, explain=explain)

    await run(context, command)

    assert re.search(r"reset: +due at 20\S+Z \(idle\), unless there is a message before", context.last)
