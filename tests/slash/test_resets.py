"""`/new` with processes running, `/ps`, and the way back from a reset."""

import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from holdfast.engine.calendar import Policies, Policy
from holdfast.engine.reset import NEVER, Resets
from holdfast.identity import identity
from holdfast.model.event import ProcessesLeft
from holdfast.processes.registry import Limits, Registry
from holdfast.slash.registry import run
from holdfast.slash.seat import Running
from holdfast.store import processes, sessions
from tests.slash.conftest import TestSeat


@pytest.fixture
async def working(seat: TestSeat, tmp_path: Path) -> AsyncIterator[str]:
    """A process of the session the person is in; its id."""
    ground = seat.engine.ground
    limits = Limits(ttl_seconds=7200, output_bytes=1 << 20)
    environment = {"PATH": os.environ["PATH"]}
    registry = Registry(ground.database, ground.clock, identity(), tmp_path, environment, limits)
    seat.engine.processes = registry
    seat.engine.resets = Resets(ground, NEVER, registry)
    await seat.say_text("Hello")
    process = await registry.start("sleep 300", tmp_path, seat.session_id or "")
    seat.running = [Running(process.id, "sleep 300")]
    yield process.id
    for one in await ground.database.read(processes.live):
        await registry.stop(one, "the test is over", grace_seconds=0)


@pytest.mark.parametrize(("answer", "action"), [("stop", "stop"), ("keep", "keep"), ("move", "hand_over")])
@pytest.mark.parametrize("typed", [True, False])
async def test_new_does_with_the_processes_what_the_person_says(
    seat: TestSeat, working: str, answer: str, action: str, typed: bool
) -> None:
    old = seat.session_id or ""
    seat.answer = None if typed else answer

    await run(seat, f"/new {answer} Tidy" if typed else "/new Tidy")

    new, _ = await seat.engine.read(seat.session_id or "")
    left = [event for event in await seat.stage.log(old) if isinstance(event, ProcessesLeft)]
    process = await seat.stage.database.read(processes.get, working)
    assert (new.id != old, new.summary.title) == (True, "Tidy")
    assert [(one.action, one.processes) for one in left] == [(action, (working,))]
    assert (process.ended_at is not None, process.session_id == new.id) == (answer == "stop", answer == "move")
    assert (await seat.engine.read(old))[0].summary.end_reason == "session_reset"


async def test_a_new_session_can_be_undone(seat: TestSeat, working: str) -> None:
    old = seat.session_id or ""
    await run(seat, "/new keep")
    new = seat.session_id or ""

    await run(seat, "/undo-reset")

    assert seat.session_id == old
    assert seat.last == f"{old} goes on, with all its messages. What was said since is kept as {new}."
    session = await seat.stage.database.read(sessions.get, old)
    assert (session.state, session.owner_worker) == ("waiting", seat.stage.worker_id)


async def test_where_nothing_was_reset_that_is_said(seat: TestSeat) -> None:
    await seat.say_text("Hello")

    await run(seat, "/undo-reset")

    assert "nothing to undo" in seat.last


async def test_ps_looks_anew(seat: TestSeat, working: str) -> None:
    await run(seat, "/ps")

    seen = await seat.stage.database.read(processes.get, working)
    assert seen.track.newest.members == 1
    assert working in seat.last


async def test_ps_says_that_others_have_processes_too(seat: TestSeat, working: str) -> None:
    await run(seat, "/new keep")
    seat.running = []

    await run(seat, "/ps")

    assert seat.last == "(1 more of other sessions; 'holdfast ps' shows them)"


@pytest.mark.parametrize("command", ["/status", "/why"])
async def test_status_and_why_say_when_a_reset_is_due(seat: TestSeat, command: str) -> None:
    await seat.say_text("Hello")
    policy = Policy("idle", 120, 6, UTC)
    policies = Policies(NEVER.default, {"cli": policy})
    seat.engine.resets = Resets(seat.engine.ground, policies, None)
    seat.engine.known = replace(seat.engine.known, policies=policies)

    await run(seat, command)

    assert re.search(r"reset: +due at 20\S+Z \(idle\), if nothing is said before", seat.last)
