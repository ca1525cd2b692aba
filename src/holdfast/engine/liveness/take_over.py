"""Takes over the turn that a dead worker left open, before anything acts in it.

It carries out what `recovery` decides: the turn is quarantined, continued or closed, after a pause if
it may have caused the death.
"""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.engine.liveness import lease_transactions
from holdfast.engine.turn import recovery
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.loop import TurnSettings, unless_stopped
from holdfast.engine.turn.recovery import Policy
from holdfast.model.process import Process
from holdfast.store.repos import log
from holdfast.tasks import run_until_first

Adopt = Callable[[str, str], Awaitable[Process | None]]
"""Makes the command of a call a background process if it outlived its worker, by the ids of the session and of the call."""
STILL_RUNNING = (
    "The outcome of this call is unknown: its worker was killed, and the command is still running as process {id} "
    "(pid {pid}). Its output is lost. The process tool can wait for it or end it."
)


async def take_over(
    active: ActiveSession,
    settings: TurnSettings,
    policy: Policy,
    *,
    adopt: Adopt | None,
    pause_after: Callable[[int], float],
) -> bool:
    """Resume or close the open turn; False if that is left to the next worker."""
    database, turn_id = active.services.database, active.turn.id or ""
    draft = await database.read(log.get_draft, active.id)
    death = await database.read(lease_transactions.death_of_holder, active)
    case = recovery.judge(active.entries, turn_id, death)
    given_up = active.session.summary.quarantined or ""  # by an earlier release, which left the turn open
    if given_up or case.is_guilty:
        reason = given_up or recovery.reason_of(active.turn, case, death)
        known = await _still_running(active, adopt)
        await active.end_turn(recovery.set_aside(active.entries, active.turn, draft, reason, known))
        return True
    if policy == "continue" and case.deaths:
        await unless_stopped(active, run_until_first(asyncio.sleep(pause_after(case.deaths)), active.pause.wait()))
        if active.pause.is_set():
            return False
    events = recovery.plan(
        active.entries,
        active.turn,
        draft,
        policy=policy,
        death=death,
        worker_id=active.services.worker_id,
        repeatable=settings.repeatable,
        known=await _still_running(active, adopt),
    )
    await active.recover(events, marks=policy == "continue", isolated=case.is_isolated)
    return True


async def _still_running(active: ActiveSession, adopt: Adopt | None) -> dict[str, str]:
    """The result text of calls whose command outlived its worker, by the id of the call."""
    found: dict[str, str] = {}
    for call in active.turn.open_calls:
        if adopt is not None and call.id in active.turn.started:
            process = await adopt(active.id, call.id)
            if process is not None:
                found[call.id] = STILL_RUNNING.format(id=process.id, pid=process.pid)
    return found
