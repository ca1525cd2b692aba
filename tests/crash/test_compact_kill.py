"""`holdfast compact` as a real process, killed at each of its fsyncs and writes: no finished chunk is requested again."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.model.event import Compacted, Event, ModelCalled, ModelSaid, SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store.repos import log, sessions, summary_chunks
from holdfast.store.sqlite.driver import open_sqlite
from tests.crash import strace
from tests.fakes.openai_server import Exchange, OpenAiServer, say

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]
SESSION = "hf-00000000000000000001"
TURNS = 60


class Author(OpenAiServer):
    """Returns summaries that contain their number."""

    async def usual(self, exchange: Exchange) -> None:
        await say(f"They talked about the garden; this is summary {len(self.requests)}.")(exchange)


async def prepare(home: Path) -> None:
    """A session whose summary takes several chunks in a window of 4,000 tokens."""
    database = await open_sqlite(home / "holdfast.db")
    await database.write(sessions.create, SESSION, SessionOpened(source="api", model="openai:test"), at=1)
    words: list[Event] = []
    for number in range(TURNS):
        words.append(UserSaid(turn_id=f"turn-{number}", parts=(Text(f"Turn {number}: " + "garden and rain " * 20),)))
        words.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text(f"Noted {number}."),)))
    await database.write(log.append_unheld, SESSION, words, at=1)
    await database.close()


async def run(home: Path, server: OpenAiServer, *, before: tuple[str, ...] = ()) -> int:
    """Run `holdfast compact` under a command that kills it; return its exit status."""
    env = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_CONTEXT_TOKENS": "4000",
        "OPENAI_API_KEY": "test",
        "OPENAI_BASE_URL": server.url,
    }
    process = await asyncio.create_subprocess_exec(
        *before,
        *(sys.executable, "-m", "holdfast", "compact", SESSION, "--json"),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), err.decode()
    return process.returncode


class State(NamedTuple):
    """What the store has: the compactions, the finished chunks, the recorded calls of the model, and all other events."""

    compactions: list[Compacted]
    chunks: int
    calls: int
    events: int


async def state(home: Path) -> State:
    """Read the session from a log that is verified on the way."""
    database = await open_sqlite(home / "holdfast.db")
    session = await database.read(sessions.get, SESSION)
    entries = await database.read(log.read_complete, session)
    kept, _ = await database.read(summary_chunks.get_progress, SESSION)
    await database.close()
    calls = sum(isinstance(entry.event, ModelCalled) for entry in entries)
    compactions = [entry.event for entry in entries if isinstance(entry.event, Compacted)]
    return State(compactions, kept, calls, len(entries) - calls)


async def kill_and_continue(home: Path, call: str, nth: int) -> bool:
    """Kill a process at the nth call of one of its threads, and let another continue. Return whether the first died."""
    await prepare(home)
    killing = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}")
    killing += ("-e", f"inject={call}:signal=SIGKILL:when={nth}")
    async with Author() as server:
        died = await run(home, server, before=killing) != 0
        asked = len(server.requests)
        before = await state(home)
        if not before.compactions:
            assert await run(home, server) == 0
        after = await state(home)
        requests = len(server.requests)

    [compacted] = after.compactions
    missing = 0 if before.compactions else compacted.chunks - before.chunks
    assert asked - before.chunks in (0, 1) or before.compactions, f"{call} {nth}: at most the current chunk is lost"
    assert compacted.epoch == 1, f"{call} {nth}"
    assert compacted.chunks > 2
    assert requests - asked == missing, f"{call} {nth}: finished chunks were requested again"
    assert (after.chunks, after.events) == (0, 1 + 2 * TURNS + 1), "the log has every message, and the compaction"
    assert requests - after.calls in (0, 1), f"{call} {nth}: at most the call that was cut off is not recorded"
    return died


@pytest.mark.parametrize(("call", "step"), [("fdatasync", 1), pytest.param("pwrite64", 13, marks=pytest.mark.soak)])
async def test_promise_18_a_compaction_killed_anywhere_is_continued(tmp_path: Path, call: str, step: int) -> None:
    strace.need_strace()
    nth, deaths = 1, 0
    while await kill_and_continue(tmp_path / str(nth), call, nth):
        nth, deaths = nth + step, deaths + 1

    assert deaths >= 4, "it was killed at the chunks and at the commit"
