"""Finds what the dead have left and sees to it; never harms the living.

A worker is dead only if (a) its process on this machine is certainly gone (pid, start time and boot), which
is seen at once; or (b) it runs where this janitor cannot look, and its beat counter has not changed for
the stale limit of the janitor's own monotonic clock, not counting the time in which the store did not
answer the janitor: nobody could beat then. No wall clock decides anything. A process of this machine
that is there but silent (stopped, stalled, suspended) is reported and left alone.

A sweep works through lists that hold only what needs work, so it costs no more for the sessions that
are well. Each session is dealt with in a transaction of its own that also takes it off its list: a janitor
that is killed leaves the rest to the next one, and two at once share the work.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

import msgspec

from holdfast.engine import replies
from holdfast.engine.bell import Bell
from holdfast.engine.hand import Ground
from holdfast.engine.holding import LEFT
from holdfast.engine.liveness import evidence_of_death
from holdfast.engine.recover import POLICY
from holdfast.engine.together import all_of
from holdfast.identity import fate
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Ended
from holdfast.model.identity import Identity
from holdfast.model.times import MINUTE
from holdfast.store import log as logs
from holdfast.store import owners, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.workers import Worker

logger = logging.getLogger(__name__)
GLANCE_SECONDS = 1.0
"""How often the processes of this machine are looked at."""
SLOW_SECONDS = 5.0
"""How long the store may take to answer before it counts as away."""
CONTINUED = frozenset(source for source, policy in POLICY.items() if policy == "continue")
"""Sources whose turns go on without a person."""
NOBODY = "its turn had nobody"


class Pace(msgspec.Struct, frozen=True):
    """When to look, and when silence means death."""

    stale_seconds: float
    sweep_seconds: float
    idle_minutes: int


class Seen(msgspec.Struct, frozen=True):
    """A worker's beat counter, and when this janitor saw it change, on its own monotonic clock."""

    beat: int
    since: float


class Verdict(msgspec.Struct, frozen=True):
    state: Literal["alive", "stalled", "silent", "dead", "ended"]
    evidence: str


class Deed(msgspec.Struct, frozen=True):
    """One thing a sweep did, and how it knew."""

    what: str
    worker_id: str = ""
    session_id: str = ""
    evidence: str = ""


class Sweep(msgspec.Struct, frozen=True):
    """What one sweep found and did."""

    workers: list[tuple[Worker, Verdict]]
    deeds: list[Deed]


def judge(worker: Worker, seen: Seen, ours: Identity, *, monotonic: float, stale_seconds: float) -> Verdict:
    """Whether the worker lives. Pure."""
    known = fate(worker.identity, ours)
    silent = monotonic - seen.since
    if known == "gone":
        return Verdict("dead", evidence_of_death(worker))
    if known == "elsewhere" and silent > stale_seconds:
        return Verdict(
            "dead", f"its beat counter stood at {seen.beat} for {silent:.0f} s, and it is not on this machine"
        )
    if worker.stalled_since is not None:
        return Verdict("stalled", "its process beats, but its event loop does not answer")
    if known == "elsewhere":
        return Verdict("alive", f"it is not on this machine; its beat {seen.beat} was watched for {silent:.0f} s")
    return Verdict("alive" if silent <= stale_seconds else "silent", f"process {worker.pid} runs")


def first_look(worker: Worker, ours: Identity) -> Verdict:
    """What can be told at once. Silence elsewhere means nothing yet: only a janitor that watches can judge that."""
    if worker.ended_at is not None:
        return Verdict("ended", worker.end_reason or "")
    return judge(worker, Seen(worker.beat, 0.0), ours, monotonic=0.0, stale_seconds=0.0)


Chore = Callable[[], Awaitable[Sequence[Deed]]]
"""Something else that a sweep sees to; what it did."""
SeeTo = Callable[[str, list[Deed]], Coroutine[Any, Any, None]]


class Janitor:
    """One per long-lived worker. `wake` has a session's turn taken up again by this worker's engine."""

    def __init__(
        self,
        ground: Ground,
        ours: Identity,
        pace: Pace,
        wake: Callable[[str], None],
        chores: Sequence[Chore] = (),
    ) -> None:
        self._ground = ground
        self._ours = ours
        self._pace = pace
        self._wake = wake
        self._chores = chores
        self._seen: dict[str, Seen] = {}
        self._asked_at: float | None = None
        """When the store was asked who lives, if it has not answered since."""

    async def work(self) -> None:
        """Glance every second, or when a worker leaves something, and sweep now and then, for ever.

        A store that is away is tried again.
        """
        next_sweep = self._ground.clock.monotonic()
        rung = False
        async with Bell(self._ground.database, LEFT) as bell:
            while True:
                try:
                    if self._ground.clock.monotonic() >= next_sweep:
                        await self.sweep()
                        next_sweep = self._ground.clock.monotonic() + self._pace.sweep_seconds
                    else:
                        await self.glance(rung=rung)
                    rung = False
                except HoldfastError as e:
                    logger.warning("a sweep was not finished and will be tried again: %s", e)
                rung = await bell.wait(GLANCE_SECONDS) or rung

    async def glance(self, *, rung: bool = False) -> list[Deed]:
        """Look at the workers alone. If one has died, was only buried by another, or `rung` that it left, see to what it left."""
        _, deeds = await self._bury_the_dead()
        buried = await self._ground.database.read(workers.uncleared, limit=1)
        if rung or buried:
            deeds += await self._see_to_what_they_left()
        return deeds

    async def sweep(self) -> Sweep:
        """Look at everything that may need seeing to, and see to it."""
        judged, deeds = await self._bury_the_dead()
        deeds += await self._see_to_what_they_left()
        deeds += await self._end_idle()
        for chore in self._chores:
            deeds += await chore()
        return Sweep(judged, deeds)

    async def _bury_the_dead(self) -> tuple[list[tuple[Worker, Verdict]], list[Deed]]:
        database, clock = self._ground.database, self._ground.clock
        judged, deeds = [], []
        for worker in await self._read_workers():
            verdict = judge(
                worker,
                self._look(worker),
                self._ours,
                monotonic=clock.monotonic(),
                stale_seconds=self._pace.stale_seconds,
            )
            judged.append((worker, verdict))
            if verdict.state == "dead" and worker.id != self._ground.worker_id:
                freed = await database.write(workers.bury, worker.id, verdict.evidence, at=clock.now())
                logger.info("%s is dead: %s; %d sessions are free", worker.id, verdict.evidence, len(freed))
                deeds.append(Deed("buried", worker.id, evidence=verdict.evidence))
        self._seen = {worker.id: self._seen[worker.id] for worker, _ in judged}
        return judged, deeds

    async def _read_workers(self) -> list[Worker]:
        """Those who live, as far as the store knows. While it does not answer nobody can beat: that is no silence."""
        monotonic = self._ground.clock.monotonic
        self._asked_at = monotonic() if self._asked_at is None else self._asked_at
        found = await self._ground.database.read(workers.alive)
        blind, self._asked_at = monotonic() - self._asked_at, None
        if blind > SLOW_SECONDS:
            self._seen = {id_: Seen(seen.beat, seen.since + blind) for id_, seen in self._seen.items()}
        return found

    def _look(self, worker: Worker) -> Seen:
        """What is known of the worker's beats, by this janitor's own watch."""
        seen = self._seen.get(worker.id)
        if seen is None or seen.beat != worker.beat:
            seen = Seen(worker.beat, self._ground.clock.monotonic())
            self._seen[worker.id] = seen
        return seen

    async def _see_to_what_they_left(self) -> list[Deed]:
        """End or recover the sessions of ended workers, and turns and words that nobody attends to."""
        database = self._ground.database
        deeds: list[Deed] = []
        last = ""
        while page := await database.read(workers.uncleared, last):
            for worker in page:
                await self._clear(worker, deeds)
            last = page[-1].id
        await self._each(owners.orphans, self._recover_orphan, deeds)
        await self._each(owners.unheard, self._wake_unheard, deeds)
        return deeds

    async def _clear(self, worker: Worker, deeds: list[Deed]) -> None:
        database, clock = self._ground.database, self._ground.clock
        evidence = f"{worker.id} is gone: {worker.end_reason}"

        async def reap(session_id: str) -> None:
            done = await database.write(owners.reap, session_id, worker, evidence, continued=CONTINUED, at=clock.now())
            if done is not None:
                deeds.append(Deed(done, worker.id, session_id, evidence))

        while page := await database.read(owners.owned, worker.id):
            await all_of(*map(reap, page))
        await database.write(workers.clear, worker.id, at=clock.now())

    async def _each(self, listed: Callable[[Transaction, str], list[str]], see_to: SeeTo, deeds: list[Deed]) -> None:
        """See to every session of a list, a page at a time; those of a page side by side, so that they share commits."""
        last = ""
        while page := await self._ground.database.read(listed, last):
            await all_of(*(see_to(session_id, deeds) for session_id in page))
            last = page[-1]

    async def _recover_orphan(self, session_id: str, deeds: list[Deed]) -> None:
        """Take up a turn that nobody works on, or end its session where only a person should go on."""
        session = await self._ground.database.read(sessions.get, session_id)
        turn_id = session.summary.open_turn or ""
        expected = await self._ground.database.read(replies.is_expected, session_id, turn_id)
        if session.summary.source in CONTINUED or expected:
            self._wake(session_id)
            deeds.append(Deed("recovering", session_id=session_id, evidence=NOBODY))
        elif session.owner_worker is None and await self._ground.database.write(
            _end_orphan, session_id, at=self._ground.clock.now()
        ):
            deeds.append(Deed("ended as reaped", session_id=session_id, evidence=NOBODY))

    async def _wake_unheard(self, session_id: str, deeds: list[Deed]) -> None:
        self._wake(session_id)
        deeds.append(Deed("woken", session_id=session_id, evidence="words waited and nobody listened"))

    async def _end_idle(self) -> list[Deed]:
        before = self._ground.clock.now() - self._pace.idle_minutes * MINUTE
        evidence = f"unused for {self._pace.idle_minutes} minutes"
        deeds: list[Deed] = []
        while ended := await self._ground.database.write(owners.end_idle, before, at=self._ground.clock.now()):
            deeds += [Deed("ended as idle", session_id=session.id, evidence=evidence) for session in ended]
        return deeds


def _end_orphan(tx: Transaction, session_id: str, *, at: int) -> bool:
    """End a session whose turn nobody works on, at its last sign of life; the turn can still be taken up."""
    session = sessions.get(tx, session_id)
    if session.worker_id is not None or session.summary.ended_at is not None or session.summary.open_turn is None:
        return False
    ended = Ended(reason="reaped", detail=NOBODY, last_sign_at=session.summary.updated_at)
    logs.append_unheld(tx, session_id, [ended], at=at)
    return True
