"""Promise 3: a signal adds nothing to the log. Real processes, real signals."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from holdfast.model.event import Event, InstructionsLoaded, ModelSaid, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.store.repos import log, session_list
from holdfast.store.sqlite.driver import open_sqlite
from tests.crash.test_run_storm import command
from tests.fakes.openai_server import OpenAiServer, chunk, hang, say

pytestmark = pytest.mark.crash
STOPPING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


async def start(home: Path, server: OpenAiServer, *before: str) -> asyncio.subprocess.Process:
    line, env = command(home, server, "Tell me a story")
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *before, *line, env=env, cwd=home, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )


async def asked(server: OpenAiServer) -> None:
    async with asyncio.timeout(60):
        while not server.requests:
            await asyncio.sleep(0.02)


async def events_of(home: Path) -> tuple[str, list[Event], str]:
    """The state of the session, its log, and its draft."""
    database = await open_sqlite(home / "holdfast.db")
    page = await database.read(session_list.list_page, session_list.EVERYTHING, limit=2)
    [session] = page.sessions
    entries = await database.read(log.read_complete, session)
    draft = await database.read(log.get_draft, session.id)
    await database.close()
    return session.state, [entry.event for entry in entries], draft.body if draft else ""


@pytest.mark.parametrize("number", STOPPING)
async def test_promise_3_a_signal_lets_the_current_step_finish_and_exits_130(tmp_path: Path, number: int) -> None:
    async with OpenAiServer() as server:
        server.acts.append(say("Once upon a time there was a lighthouse.", pause_seconds=0.1))
        process = await start(tmp_path, server)
        await asked(server)

        process.send_signal(number)
        out, _ = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 130
    state, events, _ = await events_of(tmp_path)
    assert state == "waiting"
    assert [text_of(event.parts) for event in events if isinstance(event, ModelSaid)] == [
        "Once upon a time there was a lighthouse."
    ]
    assert json.loads(out)["text"] == "Once upon a time there was a lighthouse."


async def test_a_hang_up_that_was_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    async with OpenAiServer() as server:
        server.acts.append(say("Once upon a time there was a lighthouse.", pause_seconds=0.1))
        process = await start(tmp_path, server, "nohup")
        await asked(server)

        process.send_signal(signal.SIGHUP)
        out, err = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 0, err.decode()
    assert json.loads(out)["text"] == "Once upon a time there was a lighthouse."


@pytest.mark.parametrize("number", [*STOPPING, signal.SIGKILL])
async def test_promise_3_every_signal_leaves_the_same_history_as_sigkill(tmp_path: Path, number: int) -> None:
    async with OpenAiServer() as server:
        server.acts.append(hang(server, chunk({"role": "assistant", "content": "Once upon"})))
        process = await start(tmp_path, server)
        await asked(server)
        await asyncio.sleep(1.5)  # long enough for a draft

        process.send_signal(number)
        await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode in (130, -signal.SIGKILL)
    state, events, draft = await events_of(tmp_path)
    assert not any(isinstance(event, ModelSaid | TurnEnded) for event in events), "a signal adds nothing to the log"
    said = [event for event in events if not isinstance(event, InstructionsLoaded)]
    assert isinstance(said[-1], UserSaid)
    assert state in ("interrupted", "running")
    assert draft == "Once upon"


async def test_a_second_signal_exits_at_once(tmp_path: Path) -> None:
    async with OpenAiServer() as server:
        server.acts.append(hang(server))
        process = await start(tmp_path, server)
        await asked(server)

        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 5)

    assert process.returncode == 130
