"""The same requests are brought over and over, by processes that are killed in between: each may count once."""

import asyncio
from collections import Counter, defaultdict

from holdfast.clock import SystemClock
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.store import sessions
from holdfast.store.database import Database
from holdfast.torture import proof
from holdfast.torture.outcome import Outcome, Stage
from holdfast.torture.scene import ECHO, on_stage
from holdfast.torture.start import started

SESSIONS = 3
EACH = 6
"""Requests to each session."""
LONGEST_LIFE = 0.03
"""Seconds that a courier goes on at most after it has brought what it was let bring; repeats are quick."""
Brought = dict[str, list[str]]
"""The turns that a request was answered with, as far as somebody was told."""


async def redelivery(stage: Stage, outcome: Outcome) -> None:
    database = await stage.open(stage.url)
    brought: Brought = defaultdict(list)
    try:
        async with on_stage(database, stage.folder, model=ECHO) as scene:
            ids = [scene.engine.ground.ids.make(SESSION) for _ in range(SESSIONS)]
            for session_id in ids:
                await database.write(sessions.create, session_id, SessionOpened(source="api"), at=SystemClock().now())
            requests = [[one, f"{number}-{one[-4:]}"] for one in ids for number in range(EACH)]
            for _ in range(max(1, stage.rounds // 2)):
                await asyncio.gather(*(_bring(stage, requests, brought, outcome, killed=True) for _ in range(2)))
                await scene.see_to_everything()  # a turn that brings down one worker after another would be given up
            await _bring(stage, requests, brought, outcome, killed=False)
            await scene.see_to_everything()
            await _check(database, requests, brought, outcome)
            await proof.nothing_is_leaked(database, outcome, [scene.engine.ground.worker_id])
    finally:
        await database.close()


async def _bring(stage: Stage, requests: list[list[str]], brought: Brought, outcome: Outcome, *, killed: bool) -> None:
    wanted, seconds = stage.chance.randrange(EACH), stage.chance.uniform(0, LONGEST_LIFE)
    given = stage.given(requests=requests, seed=stage.chance.getrandbits(32))
    async with started("courier", given) as child:
        if killed:
            await child.until(lambda lines: len(lines) > wanted)
            await asyncio.sleep(seconds)
            outcome.count("kills", await child.kill())
        else:
            await child.hear("all")
            await child.end_well()
        for line in child.lines:
            if "brought" in line:
                outcome.count("deliveries")
                brought[line["brought"]].append(line["turn"])


async def _check(database: Database, requests: list[list[str]], brought: Brought, outcome: Outcome) -> None:
    """Each request stands in its session once, and whoever brought it was led to the same turn."""
    found = await proof.logs(database, outcome)
    for session_id, entries in found.items():
        proof.turns_are_whole(session_id, entries, 0, outcome)
        times = Counter(proof.words(entries))
        for key in (key for where, key in requests if where == session_id):
            if times[f"request {key}"] > 1:
                outcome.double(f"request {key} is there {times[f'request {key}']} times")
            elif brought[key] and not times[f"request {key}"]:
                outcome.lose(f"request {key} was acknowledged and is not there")
            if len(set(brought[key])) > 1:
                outcome.double(f"request {key} was answered by {len(set(brought[key]))} turns")
