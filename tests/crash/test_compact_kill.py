"""`holdfast compact` as a real process, killed with SIGKILL at each of its flushes and writes: no finished piece is asked for again."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.model.event import Compacted, Event, ModelSaid, SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store import chunks, log, sessions
from holdfast.store.sqlite import open_sqlite
from tests.crash import traced
from tests.fakes.openai_server import Exchange, OpenAiServer, say

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]
SESSION = "hf-00000000000000000001"
TURNS = 60


class Author(OpenAiServer):
    """Writes summaries, each of which tells how many there were before it."""

    async def usual(self, exchange: Exchange) -> None:
        await say(f"They talked about the garden; this is summary {len(self.requests)}.")(exchange)


async def prepare(home: Path) -> None:
    """A session whose summary takes several pieces in a window of 4,000 tokens."""
    database = await open_sqlite(home / "holdfast.db")
    await database.write(sessions.create, SESSION, SessionOpened(source="api", model="openai:test"), at=1)
    words: list[Event] = []
    for number in range(TURNS):
        words.append(UserSaid(turn_id=f"turn-{number}", parts=(Text(f"Turn {number}: " + "garden and rain " * 20),)))
        words.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text(f"Noted {number}."),)))
    await database.write(log.append_unheld, SESSION, words, at=1)
    await database.close()


async def run(home: Path, server: OpenAiServer, *, before: tuple[str, ...] = ()) -> int:
    """The exit status of one `holdfast compact`, under what is to kill it."""
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


async def state(home: Path) -> tuple[list[Compacted], int, int]:
    """The compactions of the session, how many finished pieces wait, and how long the log is, proved."""
    database = await open_sqlite(home / "holdfast.db")
    session = await database.read(sessions.get, SESSION)
    entries = await database.read(log.read_whole, session)
    kept, _ = await database.read(chunks.progress, SESSION)
    await database.close()
    return [entry.event for entry in entries if isinstance(entry.event, Compacted)], kept, len(entries)


async def die_and_go_on(home: Path, call: str, nth: int) -> bool:
    """Kill a process at the nth call of one of its threads, and let another go on; whether the first one died."""
    await prepare(home)
    killing = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}")
    killing += ("-e", f"inject={call}:signal=SIGKILL:when={nth}")
    async with Author() as server:
        died = await run(home, server, before=killing) != 0
        asked = len(server.requests)
        had, kept, _ = await state(home)
        if not had:
            assert await run(home, server) == 0
        after, left, length = await state(home)
        again = len(server.requests) - asked

    assert asked - kept in (0, 1) or had, f"{call} {nth}: at most the piece in hand is lost"
    assert [event.epoch for event in after] == [1], f"{call} {nth}"
    assert after[0].chunks > 2
    assert again == (0 if had else after[0].chunks - kept), f"{call} {nth}: finished pieces were asked for again"
    assert (left, length) == (0, 1 + 2 * TURNS + 1), "the log has every message, and the compaction"
    return died


@pytest.mark.parametrize(("call", "step"), [("fdatasync", 1), ("pwrite64", 13)])
async def test_promise_18_a_process_killed_anywhere_in_a_compaction_is_gone_on_with(
    tmp_path: Path, call: str, step: int
) -> None:
    traced.need_strace()
    nth, deaths = 1, 0
    while await die_and_go_on(tmp_path / str(nth), call, nth):
        nth, deaths = nth + step, deaths + 1

    assert deaths >= 4, "it was killed at the pieces and at the commit"
