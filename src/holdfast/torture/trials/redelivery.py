"""Processes that are killed in between send the same requests again and again; each request must run once."""

import asyncio
from collections import Counter, defaultdict

from holdfast.clock import SystemClock
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.store.database import Database
from holdfast.store.repos import sessions
from holdfast.tasks import run_all
from holdfast.torture import invariants
from holdfast.torture.fixture import ECHO, running_worker
from holdfast.torture.programs import redelivery_client
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.subprocesses import start_program

SESSIONS = 3
REQUESTS = 6
"""Requests to each session."""
MAX_LIFE = 0.03
"""Seconds that a client continues before it is killed; short, because repeated requests return quickly."""
Deliveries = dict[str, list[str]]
"""The turns that each request was answered with, by idempotency key."""


async def redelivery(trial: TrialContext, result: TrialResult) -> None:
    database = await trial.open(trial.url)
    deliveries: Deliveries = defaultdict(list)
    try:
        async with running_worker(database, trial.folder, model=ECHO) as worker:
            ids = [worker.engine.services.ids.make(SESSION) for _ in range(SESSIONS)]
            for session_id in ids:
                await database.write(sessions.create, session_id, SessionOpened(source="api"), at=SystemClock().now())
            requests = [[one, f"{number}-{one[-4:]}"] for one in ids for number in range(REQUESTS)]
            for _ in range(max(1, trial.rounds // 2)):
                await run_all(*(_deliver(trial, requests, deliveries, result, killed=True) for _ in range(2)))
                await worker.recover()  # a turn whose worker dies several times in a row would be quarantined
            await _deliver(trial, requests, deliveries, result, killed=False)
            await worker.recover()
            await _check(database, requests, deliveries, result)
            await invariants.check_leaks(database, result, [worker.id])
    finally:
        await database.close()


async def _deliver(
    trial: TrialContext, requests: list[list[str]], deliveries: Deliveries, result: TrialResult, *, killed: bool
) -> None:
    minimum, seconds = trial.random.randrange(REQUESTS), trial.random.uniform(0, MAX_LIFE)
    parameters = trial.parameters(requests=requests, seed=trial.random.getrandbits(32))
    async with start_program(redelivery_client, parameters) as child:
        if killed:
            await child.wait_until(lambda lines: len(lines) > minimum)
            await asyncio.sleep(seconds)
            result.count("kills", await child.kill())
        else:
            await child.next_line("finished")
            await child.wait_for_success()
        for line in child.lines:
            if "delivered" in line:
                result.count("deliveries")
                deliveries[line["delivered"]].append(line["turn"])


async def _check(database: Database, requests: list[list[str]], deliveries: Deliveries, result: TrialResult) -> None:
    """Check that each request is in its session once, and that every sender was given the same turn."""
    logs = await invariants.read_verified_logs(database, result)
    for session_id, entries in logs.items():
        invariants.check_turns(session_id, entries, 0, result)
        times = Counter(invariants.user_texts(entries))
        for key in (key for target, key in requests if target == session_id):
            if times[f"request {key}"] > 1:
                result.add_doubled(f"request {key} is present {times[f'request {key}']} times")
            elif deliveries[key] and not times[f"request {key}"]:
                result.add_lost(f"request {key} was acknowledged and is missing")
            if len(set(deliveries[key])) > 1:
                result.add_doubled(f"request {key} was answered by {len(set(deliveries[key]))} turns")
