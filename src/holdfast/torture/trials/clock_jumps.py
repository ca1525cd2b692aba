"""The clock jumps back and forth by years while turns run and janitors sweep. They must not touch live workers, only dead ones."""

import random

from holdfast.clock import SystemClock
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.liveness.janitor import Janitor
from holdfast.engine.submission import NewMessage
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.model.times import DAY
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database
from holdfast.store.repos import log, sessions, workers
from holdfast.torture import invariants
from holdfast.torture.fixture import JANITOR, TrialWorker, running_worker
from holdfast.torture.programs import lease_holder
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.subprocesses import ChildProcess, start_program

MAX_JUMP = 5 * 365 * DAY
HELD = 3
OPENED = 3


class JumpingClock:
    """Wall-clock time is random within MAX_JUMP of the real time; monotonic time is real."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._real = SystemClock()

    def now(self) -> int:
        return self._real.now() + self._random.randint(-MAX_JUMP, MAX_JUMP)

    def monotonic(self) -> float:
        return self._real.monotonic()


async def clock_jumps(trial: TrialContext, result: TrialResult) -> None:
    database = await trial.open(trial.url)
    clock = JumpingClock(trial.random)
    try:
        async with running_worker(database, trial.folder, clock=clock) as worker:
            ids = [worker.engine.services.ids.make(SESSION) for _ in range(2 * HELD)]
            for session_id in ids:
                await database.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
            async with (
                start_program(lease_holder, trial.parameters(sessions=ids[:HELD])) as child,
                start_program(lease_holder, trial.parameters(sessions=ids[HELD:])) as killed,
            ):
                holder = (await child.next_line("worker"))["worker"]
                await killed.next_line("worker")
                await killed.kill()
                await _run_turns(trial, worker, child, result)
                await _check_alive(database, holder, child, result)
                await invariants.check_leaks(database, result, [worker.id, holder])
            await _check_logs(database, trial, ids[:HELD], result)
            for session_id in ids[HELD:]:
                if (await database.read(sessions.get, session_id)).state != "ended":
                    result.add_leaked(f"{session_id} belonged to a dead worker and has not ended")
    finally:
        await database.close()


async def _run_turns(trial: TrialContext, worker: TrialWorker, child: ChildProcess, result: TrialResult) -> None:
    """Run turns in a few sessions, with a sweep by a fresh janitor after each."""
    opened = [(await worker.engine.open(OpenRequest(source="api"))).session.id for _ in range(OPENED)]
    for number in range(trial.rounds):
        turn = await worker.engine.submit(NewMessage(opened[number % OPENED], f"word {number}"), stream="live")
        async for _ in turn.follow():
            pass
        child.send(f"word {number}")
        await child.next_line("done")
        await Janitor(worker.engine.services, current_identity(), JANITOR, worker.engine.take_up).sweep()
        result.count("jumps")
        result.count("sweeps")
    await worker.engine.settled()
    for index, session_id in enumerate(opened):
        texts = invariants.user_texts(await worker.engine.services.database.read(log.read, session_id))
        if texts != [f"word {number}" for number in range(trial.rounds) if number % OPENED == index]:
            result.add_lost(f"{session_id} contains {texts}")


async def _check_alive(database: Database, holder: str, child: ChildProcess, result: TrialResult) -> None:
    """Check that the live process was not declared dead and could write all the time."""
    found = await database.read(workers.get, holder)
    if found is None or found.ended_at is not None:
        result.add_lost(f"{holder} was declared dead while it was alive")
    for line in child.lines:
        if "command" in line and line["outcome"] is not True:
            result.add_lost(f"a live worker could not write to {line['session']}: {line['outcome']}")


async def _check_logs(database: Database, trial: TrialContext, held: list[str], result: TrialResult) -> None:
    logs = await invariants.read_verified_logs(database, result)
    marks = invariants.count_marks(trial.folder)
    for session_id, entries in logs.items():
        if session_id not in held:
            invariants.check_turns(session_id, entries, marks[session_id], result)
        elif (texts := invariants.user_texts(entries)) != [f"word {number}" for number in range(trial.rounds)]:
            result.add_lost(f"{session_id} contains {texts}")
