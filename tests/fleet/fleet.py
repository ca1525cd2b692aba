"""Workers on several machines over one store, load generators, and what must hold afterwards."""

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, UserSaid
from holdfast.model.message import text_of
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from holdfast.torture.scratch_store import open_url
from tests.crash.programs import Hung, Process, wait_until
from tests.engine.well_formed import assert_well_formed
from tests.fleet.load import LoadReport, Orders, answers

KEY = "hfk-for-the-fleet-only"
QUICK = {"heartbeat_seconds": 1, "stale_seconds": 10, "sweep_seconds": 2}
"""A silent worker is dead after ten seconds, which keeps the tests short."""


class Worker:
    """`holdfast serve` on a machine of that name. `where` is a command prefix that runs a command on that machine.

    `serve` has further options of the command.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        store: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        where: Sequence[str] = (),
        environment: Sequence[str] = (),
        model: str = "scripted:tools",
        api: dict[str, object] | None = None,
        liveness: dict[str, float] | None = None,
        serve: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.home = folder / name
        self._host = host
        self._serve = serve
        self._words = [*where, "env", f"HOLDFAST_STORE={store}", *environment]
        self.home.mkdir(parents=True, exist_ok=True)
        sections = {
            "api": {"key": KEY, **(api or {})},
            "liveness": liveness or {},
            "agent": {"approvals": "allow"},
            "terminal": {"backend": "local"},
        }
        lines = [f'model = "{model}"']
        for section, given in sections.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in given.items())]
        (self.home / "config.toml").write_text("\n".join([*lines, ""]))
        (self.home / "config.toml").chmod(0o600)
        self.port = port
        self.start()

    def start(self) -> None:
        command = [*self._words, sys.executable, "-m", "tests.fleet.host", self.name, "--home", str(self.home), "serve"]
        self.process = Process(*command, "--host", self._host, "--port", str(self.port), *self._serve)
        self.process.__enter__()
        if not self.process.wait_for_output("Holdfast is listening on"):
            raise Hung(f"{self.name} did not start: {self.process.stderr}")
        found = re.search(r"http://\S+:(\d+);", self.process.stdout)
        assert found is not None, self.process.stdout
        self.port = int(found[1])

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    def http(self, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {KEY}", **options.pop("headers", {})}
        return httpx.Client(base_url=self.url, headers=headers, **{"timeout": 60, **options})

    def stop(self) -> None:
        """Like a supervisor before it starts another."""
        os.kill(self.process.pid, signal.SIGTERM)
        code = self.process.wait(120)
        assert code == 0, f"{self.name} ended with {code}: {self.process.stderr}"

    def restart(self) -> None:
        self.process.__exit__(None, None, None)
        self.start()

    def close(self) -> None:
        self.process.__exit__(None, None, None)


class Talking:
    """A running load generator."""

    def __init__(self, urls: Iterable[str], *, talkers: int = 6, where: Sequence[str] = (), **more: Any) -> None:
        orders = Orders(list(urls), KEY, talkers, **more)
        self.process = Process(*where, sys.executable, "-m", "tests.fleet.load", msgspec.json.encode(orders).decode())

    @property
    def answers(self) -> int:
        return self.process.stdout.count("\n")

    def wait_for_more(self, more: int) -> None:
        """Wait until that many more requests were answered."""
        goal = self.answers + more

        def reached() -> bool:
            assert not self.process.stderr, self.process.stderr
            return self.answers >= goal

        wait_until(reached, f"{more} more answers, beside {self.answers}")

    def finish(self) -> LoadReport:
        self.process.send("")
        code = self.process.wait(180)
        assert code == 0, self.process.stderr
        [line] = [line for line in self.process.stdout.splitlines() if line.startswith("report ")]
        return msgspec.json.decode(line.removeprefix("report "), type=LoadReport)

    def close(self) -> None:
        self.process.__exit__(None, None, None)


async def logs_of(store: str, report: LoadReport) -> dict[str, list[Entry]]:
    """The log of each client's session, verified by count and hash."""
    database = await open_url(store)

    def whole(tx: Transaction, session_id: str) -> list[Entry]:
        return log.read_complete(tx, sessions.get(tx, session_id))

    try:
        return {name: await database.read(whole, session_id) for name, session_id in report.sessions.items()}
    finally:
        await database.close()


async def hold_against(report: LoadReport, store: str) -> dict[str, list[Entry]]:
    """Check that the logs have exactly the answered messages, once and in order; returns the logs."""
    assert report.wrong == []
    assert all(report.said.values()), "every request was answered"
    found = await logs_of(store, report)
    for name, entries in found.items():
        events = [entry.event for entry in entries]
        assert_well_formed(events)
        said = [text_of(event.parts).partition("\n")[0] for event in events if isinstance(event, UserSaid)]
        assert said == report.said[name], "nothing lost, nothing doubled"
        replies = [text_of(e.parts) for e in events if isinstance(e, ModelSaid) and not e.partial and text_of(e.parts)]
        assert len(replies) == len(said), "each has one answer"
        assert all(answers(reply, word) for reply, word in zip(replies, said, strict=True))
    return found


def hold_effects_against(report: LoadReport, file: Path) -> None:
    """Each turn has acted once, except those reported as unknown because their worker died meanwhile."""
    done = Counter(file.read_text().split())
    assert set(done.values()) == {1}, f"acted twice: {[word for word, times in done.items() if times > 1]}"
    everything = {word for words in report.said.values() for word in words}
    assert set(done) <= everything
    assert everything - set(done) <= set(report.unknown)
