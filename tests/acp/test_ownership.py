"""Who owns the sessions that an editor has open."""

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast.model.session import Session
from holdfast.store.repos import sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.acp.editor import editing

pytestmark = pytest.mark.process


async def stored(home: Path, session_id: str) -> Session:
    database = await open_sqlite(home / "holdfast.db")
    try:
        return await database.read(sessions.get, session_id)
    finally:
        await database.close()


async def sweep(home: Path) -> None:
    command = (sys.executable, "-m", "holdfast", "--home", str(home), "janitor", "--once")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def test_promise_9_a_session_ends_when_its_editor_closes_it_or_leaves(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        closed, left = await editor.new(folder), await editor.new(folder)
        await sweep(home)
        owners = {(await stored(home, session)).owner_worker for session in (closed, left)}
        await editor.connection.close_session(session_id=closed)
        assert (await stored(home, closed)).summary.end_reason == "cli_close"
        assert (await stored(home, left)).state == "waiting"

    assert None not in owners and len(owners) == 1
    assert (await stored(home, left)).summary.end_reason == "cli_close"
    async with editing(home) as editor:
        await editor.load(folder, left)
        assert await editor.say(left, "again") == "end_turn"
        assert "You said: again" in editor.text(left)


async def test_promise_9_a_session_of_a_killed_agent_is_reaped_and_opens_again(home: Path, folder: Path) -> None:
    async with editing(home, wait=False) as editor:
        session = await editor.new(folder)
        await editor.say(session, "hello")
        editor.process.kill()
        await editor.process.wait()
    await sweep(home)
    assert (await stored(home, session)).summary.end_reason == "reaped"

    async with editing(home) as editor:
        await editor.load(folder, session)
        assert "You said: hello" in editor.text(session)
        assert await editor.say(session, "again") == "end_turn"
