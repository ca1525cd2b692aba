"""A session whose process was killed is free: the next command can use it at once, without a sweep."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from holdfast.model.event import Event, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.store.repos import session_list
from holdfast.store.sqlite.driver import open_sqlite
from tests.crash.test_run_storm import command
from tests.crash.test_signals import asked, events_of, start
from tests.fakes.openai_server import OpenAiServer, hang, say

pytestmark = pytest.mark.crash


async def killed_in_mid_turn(home: Path, server: OpenAiServer) -> None:
    server.acts.append(hang(server))
    process = await start(home, server)
    await asked(server)
    process.send_signal(signal.SIGKILL)
    await process.communicate()


async def holdfast(home: Path, server: OpenAiServer, *args: str) -> str:
    """The output of a command after the kill."""
    line, env = command(home, server, "")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*line[:3], *args, env=env, cwd=home, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def session_id(home: Path) -> str:
    """Read from the store: a command could notice the kill."""
    database = await open_sqlite(home / "holdfast.db")
    page = await database.read(session_list.list_page, session_list.EVERYTHING, limit=2)
    await database.close()
    [session] = page.sessions
    assert session.state == "running"
    return session.id


def said(events: list[Event]) -> list[str]:
    return [text_of(event.parts) for event in events if isinstance(event, UserSaid)]


@pytest.mark.parametrize("args", [("list",), ("list", "--all"), ("show", "")])
async def test_promise_9_it_is_not_shown_as_running(tmp_path: Path, args: tuple[str, ...]) -> None:
    async with OpenAiServer() as server:
        await killed_in_mid_turn(tmp_path, server)
        ref = await session_id(tmp_path)
        shown = json.loads(await holdfast(tmp_path, server, "sessions", *(word or ref for word in args), "--json"))

    [session] = shown.get("sessions", [shown])
    assert session["state"] == "interrupted"


async def test_it_can_be_ended(tmp_path: Path) -> None:
    async with OpenAiServer() as server:
        await killed_in_mid_turn(tmp_path, server)
        await holdfast(tmp_path, server, "sessions", "end", await session_id(tmp_path))

    state, events, _ = await events_of(tmp_path)
    assert state == "ended"
    assert said(events) == ["Tell me a story"]


async def test_it_can_be_deleted_and_restored(tmp_path: Path) -> None:
    async with OpenAiServer() as server:
        await killed_in_mid_turn(tmp_path, server)
        ref = await session_id(tmp_path)
        await holdfast(tmp_path, server, "sessions", "delete", ref)
        await holdfast(tmp_path, server, "sessions", "restore", ref)

    _, events, _ = await events_of(tmp_path)
    assert said(events) == ["Tell me a story"]


async def test_it_can_continue_with_another_model(tmp_path: Path) -> None:
    async with OpenAiServer() as server:
        await killed_in_mid_turn(tmp_path, server)
        ref = await session_id(tmp_path)
        server.acts.append(say("Here I am."))
        printed = await holdfast(tmp_path, server, "run", "--session", ref, "--model", "openai:other", "And now?")

    assert "Here I am." in printed
    _, events, _ = await events_of(tmp_path)
    assert said(events) == ["Tell me a story", "And now?"]
    assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["interrupted", "done"]
    assert server.requests[-1]["model"] == "other"
