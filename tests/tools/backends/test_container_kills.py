"""Workers that are killed at any moment: no container is silently lost, duplicated or orphaned."""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import msgspec
import psutil
import pytest

from holdfast.clock import SystemClock
from holdfast.model.event import ContainerCreated, ContainerLost, ContainerRemoved, ContainerRestarted
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database
from holdfast.store.repos import log, sessions
from holdfast.tools.backends.container import ContainerBackend
from tests import sampling
from tests.crash.programs import Hung, Process
from tests.tools.backends.conftest import ENVIRONMENT
from tests.tools.backends.container_engine import Podman

ROUNDS = max(4, sampling.ROUNDS)
SESSIONS = ("hf-1", "hf-2", "hf-3")
MAX_SECONDS = 4.0
"""How long a worker lives at most, after it has started."""
pytestmark = [pytest.mark.crash, pytest.mark.timeout(120 + 30 * ROUNDS)]


class Storm:
    def __init__(self, podman: Podman, home: Path, database: Database, choice: random.Random) -> None:
        self._podman = podman
        self._home = home
        self._database = database
        self._choice = choice
        self.marks: list[dict] = []
        self.counts: Counter[str] = Counter()

    def _worker(self, seed: str) -> Process:
        settings = json.dumps(msgspec.to_builtins(self._podman.settings()))
        module = "tests.tools.backends.container_worker"
        return Process(sys.executable, "-m", module, str(self._home), settings, seed, *SESSIONS)

    async def round(self, number: int) -> None:
        """Start a worker, kill it at a random moment, and disturb its containers."""
        with self._worker(f"{number}") as worker:
            worker.wait_for_line(started=True)
            try:
                worker.wait(self._choice.uniform(0, MAX_SECONDS))
            except Hung:  # it lives until it is killed
                self.counts["kills"] += 1
            engines = [one for one in psutil.Process(worker.pid).children() if one.name() == "podman"]
            worker.kill()
            if sampling.SOAK and self._choice.random() < 0.4:  # as in a power cut
                for engine in engines:
                    self.counts["engine commands killed"] += engine.is_running()
                    engine.kill()
            lines = worker.lines()
            assert not worker.stderr, worker.stderr
        await self._check(lines)
        self._disturb()

    def _disturb(self) -> None:
        # A command of the killed worker may still remove one of them.
        for container in self._podman.containers():
            kind = self._choice.random()
            if kind < 0.1:
                self._podman.run("stop", "--time", "0", container, is_gone_allowed=True)
                self.counts["stopped by others"] += 1
            elif kind < 0.2:
                self._podman.run("rm", "--force", "--time", "0", container, is_gone_allowed=True)
                self.counts["removed by others"] += 1

    async def settle(self) -> None:
        """A worker that is not killed continues every session."""
        with self._worker("settle") as worker:
            assert worker.wait() == 0, worker.stderr
            lines = worker.lines()
        assert {"all_settled": True} in lines
        await self._check(lines)

    async def _check(self, lines: list[dict]) -> None:
        for line in lines:
            if "mark" in line:
                assert line["ok"], line
                self.marks.append(line)
                self.counts["acknowledged commands"] += 1
            elif "settled" in line:
                assert line["ok"], line
                await self._check_marks(line)

    async def _check_marks(self, settled: dict) -> None:
        """Every acknowledged command is in the container, or the log says what happened to its container."""
        ended = {one.container_id for one in await self.events(settled["settled"], ContainerLost, ContainerRemoved)}
        for one in self.marks:
            if one["session"] == settled["settled"]:
                is_there = one["container"] == settled["container"] and one["mark"] in settled["text"]
                assert is_there or one["container"] in ended, (one, settled, ended)

    async def events(self, session_id: str, *kinds: type) -> list:
        entries = await self._database.read(log.read, session_id)
        return [entry.event for entry in entries if isinstance(entry.event, kinds)]


async def test_killed_workers_neither_lose_nor_duplicate_nor_orphan_containers(podman, home, database, new_context):
    for session_id in SESSIONS:
        await new_context(session_id, "container")
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    storm = Storm(podman, home, database, random.Random(seed))
    try:
        for number in range(ROUNDS):
            await storm.round(number)
        await storm.settle()

        created = [one.container_id for name in SESSIONS for one in await storm.events(name, ContainerCreated)]
        gone = [
            one.container_id for name in SESSIONS for one in await storm.events(name, ContainerLost, ContainerRemoved)
        ]
        assert len(created) == len(set(created))
        assert len(gone) == len(set(gone)), "the end of each is recorded once"
        assert set(podman.containers()) == set(created) - set(gone), "no container is duplicated or unexplained"
        assert len(podman.containers()) == len(SESSIONS)

        backend = ContainerBackend(database, SystemClock(), current_identity(), podman.settings(), ENVIRONMENT, home)
        for session_id in SESSIONS:
            await database.write(sessions.end, session_id, "user", at=SystemClock().now())
        await backend.remove_unused()
        assert podman.containers() == [], "none is orphaned"
    finally:
        podman.remove_all()
    for kind in (ContainerCreated, ContainerRestarted, ContainerLost, ContainerRemoved):
        storm.counts[kind.__name__] = sum([len(await storm.events(name, kind)) for name in SESSIONS])
    print(f"{ROUNDS} rounds: {dict(storm.counts)}")
