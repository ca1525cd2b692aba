"""`holdfast run` against an OpenAI-compatible server, killed with SIGKILL at any moment, repeatedly."""

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.model.event import ToolEnded, ToolStarted, UserSaid
from holdfast.model.message import text_of
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests import sampling
from tests.engine.well_formed import assert_well_formed
from tests.fakes.openai_server import OpenAiServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]
STORMS = 4
ROUNDS = max(100, sampling.ROUNDS) // STORMS if sampling.SOAK else 8
KEY = "storm"


def command(home: Path, server: OpenAiServer, prompt: str) -> tuple[list[str], dict[str, str]]:
    env = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        "HOME": str(home),
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_MODEL": "openai:test",
        "OPENAI_API_KEY": "test",
        "OPENAI_BASE_URL": server.url,
    }
    return [sys.executable, "-m", "holdfast", "run", "--key", KEY, "--json", prompt], env


async def run(home: Path, server: OpenAiServer, prompt: str, *, kill_after: float | None) -> tuple[int, str]:
    """Run it and kill it after that many seconds, if it still runs; return the exit status and the output."""
    line, env = command(home, server, prompt)
    process = await asyncio.create_subprocess_exec(
        *line,
        env=env,
        cwd=home.parent,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    talking = asyncio.create_task(process.communicate())  # never cancelled: that would lose the output read so far
    done, _ = await asyncio.wait({talking}, timeout=kill_after or 120)
    if not done:
        assert kill_after is not None, "a run without a kill must end by itself"
        # Not by the method of the process, which may take the exit status from the loop.
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process.pid, signal.SIGKILL)
    out, err = await talking
    assert process.returncode in (0, -signal.SIGKILL), err.decode()
    return process.returncode, out.decode()


def prompt_of(number: int) -> str:
    """Two parallel calls: one with a side effect, one without."""
    acting = json.dumps({"command": f"echo {number} >> effects"})
    looking = json.dumps({"path": "effects"})
    return f"Round {number}\nuse tool terminal {acting}\nuse tool read_file {looking}"


@pytest.mark.parametrize("storm", sampling.every_nth(range(STORMS), 2))
async def test_promises_1_6_and_7_hold_in_a_storm_of_kills(tmp_path: Path, storm: int) -> None:
    chance = random.Random(storm)
    asked: list[str] = []
    home = tmp_path / "home"
    async with OpenAiServer(pause_seconds=0.01) as server:
        loop = asyncio.get_running_loop()
        began = loop.time()
        _, out = await run(home, server, prompt_of(0), kill_after=None)
        usual = loop.time() - began
        acknowledged = [json.loads(out)]
        for number in range(1, ROUNDS + 1):
            status, out = await run(home, server, prompt_of(number), kill_after=chance.uniform(0.3, 1.1) * usual)
            if status == 0:
                acknowledged.append(json.loads(out))
        _, out = await run(home, server, "The last word", kill_after=None)
        acknowledged.append(json.loads(out))
        for request in server.requests:
            assert server.complaint(request) is None, "the provider accepts every request"
            asked.append(json.dumps(request["messages"]))

    database = await open_sqlite(home / "holdfast.db")
    session_id = acknowledged[0]["session_id"]
    session = await database.read(sessions.get, session_id)
    entries = await database.read(log.read_complete, session)
    await database.close()
    events = [entry.event for entry in entries]

    assert {reply["session_id"] for reply in acknowledged} == {session_id}
    assert_well_formed(events)
    said = [text_of(event.parts) for event in events if isinstance(event, UserSaid)]
    assert len(said) == len(set(said)), "nothing was admitted twice"
    for number in range(ROUNDS + 1):
        if any(f"Round {number}\\n" in request for request in asked):
            assert prompt_of(number) in said, "the model only got stored messages"
    by_seq = {entry.seq: entry for entry in entries}
    for reply in acknowledged:
        assert getattr(by_seq[reply["seq"]].event, "turn_id", None) == reply["turn_id"], (
            "what was printed is in the log"
        )
    effects = (tmp_path / "effects").read_text().split()
    assert len(effects) == len(set(effects)), "no command was run twice"
    started = sum(isinstance(event, ToolStarted) and event.name == "terminal" for event in events)
    unknown = sum(isinstance(event, ToolEnded) and event.outcome == "unknown" for event in events)
    assert len(effects) <= started
    done = sum(isinstance(event, ToolEnded) and event.name == "terminal" and event.outcome == "ok" for event in events)
    assert done <= len(effects) <= done + unknown, "an effect without a result is recorded as unknown"
