"""A process is stopped while another takes over its sessions. After it wakes up, none of its writes may take effect."""

import signal

from holdfast.clock import SystemClock
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION
from holdfast.model.message import Text
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.torture import invariants
from holdfast.torture.fixture import TrialWorker, running_worker
from holdfast.torture.programs import lease_holder
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.subprocesses import ChildProcess, start_program

COMMANDS = ("late", "draft", "take", "release", "beat")
MAX_SESSIONS = 20


async def stale_writer(trial: TrialContext, result: TrialResult) -> None:
    database = await trial.open(trial.url)
    try:
        async with running_worker(database, trial.folder) as worker:
            ids = [worker.engine.services.ids.make(SESSION) for _ in range(min(trial.rounds, MAX_SESSIONS))]
            for session_id in ids:
                await database.write(sessions.create, session_id, SessionOpened(source="run"), at=_now())
            async with start_program(lease_holder, trial.parameters(sessions=ids)) as child:
                await _take_over(database, worker, child, ids)
                _count_late_writes(child, result)
                await child.kill()
            for session_id in ids:
                texts = invariants.user_texts(await database.read(log.read, session_id))
                if texts != ["early", "in time", "in time again"]:
                    result.add_lost(f"{session_id} contains {texts}")
            await worker.recover()
            await invariants.read_verified_logs(database, result)
            await invariants.check_leaks(database, result, [worker.id])
    finally:
        await database.close()


async def _take_over(database: Database, worker: TrialWorker, child: ChildProcess, ids: list[str]) -> None:
    """Let the child write, stop it, declare it dead, write in its place, and let it wake up and try to write."""
    stale = (await child.next_line("worker"))["worker"]
    child.send("early")
    await child.next_line("done")
    child.signal(signal.SIGSTOP)
    await database.write(workers.mark_dead, stale, "silent", at=_now())
    held = [await database.write(leases.take, one, worker.id) for one in ids]
    for lease in held:
        await database.write(log.append, lease, [_message("in time")], at=_now())
    for command in COMMANDS:
        child.send(command)
    child.signal(signal.SIGCONT)
    for _ in COMMANDS:
        await child.next_line("done")
    for lease in held:
        await database.write(log.append, lease, [_message("in time again")], at=_now())
        await database.write(leases.release, lease)


def _count_late_writes(child: ChildProcess, result: TrialResult) -> None:
    for line in child.lines:
        if line.get("command") in COMMANDS:
            result.count("late writes")
            if line["outcome"] is True:
                result.add_doubled(f"a worker that was declared dead executed {line['command']!r} on {line['session']}")


def _message(text: str) -> UserSaid:
    return UserSaid(turn_id="turn-second", parts=(Text(text),))


def _now() -> int:
    return SystemClock().now()
