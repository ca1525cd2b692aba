"""The agent is killed at every message of a turn: what was shown is the beginning of what a load shows again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.acp.editor import Editor, editing
from tests.sampling import every_nth

pytestmark = [pytest.mark.process, pytest.mark.crash]
PROMPT = "Plan, look, and report"
ITEMS = [{"content": "Look", "status": "in_progress"}]
STEPS = [
    {"think": "A plan first.", "say": "I plan.", "call": [{"name": "todo", "arguments": {"items": ITEMS}}]},
    {"say": "I look.", "call": [{"name": "terminal", "arguments": {"command": "echo seen >> seen.txt; cat seen.txt"}}]},
    {"say": "This report is long enough to be streamed in several pieces. " * 3, "delay_seconds": 0.02},
]
UPDATES = 16
"""More than the updates of the turn, which the last cases therefore complete."""


@pytest.fixture
def scripted(home: Path) -> Path:
    script = home.parent / "script.json"
    script.write_text(json.dumps({"steps": STEPS, "loop": True}))
    (home / "config.toml").write_text(f'model = "scripted:{script}"\n[agent]\ntitles = false\n')
    return home


async def play_until(home: Path, folder: Path, nth: int) -> tuple[str, Editor, bool]:
    """Play the turn, and kill the agent when the nth update arrives. Returns whether it was killed."""
    async with editing(home, wait=False) as editor:
        session = await editor.new(folder)
        await editor.wait_for(lambda: bool(editor.updates))  # the list of commands, which comes in any case
        before = len(editor.updates)
        reached = asyncio.Event()

        def count(update: dict[str, Any]) -> None:
            if len(editor.updates) - before == nth:
                editor.process.kill()
                reached.set()

        editor.on_update = count
        turn, killed = asyncio.create_task(editor.say(session, PROMPT)), asyncio.create_task(reached.wait())
        await asyncio.wait({turn, killed}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        for task in (turn, killed):
            task.cancel()
        if reached.is_set():
            await editor.process.wait()
        return session, editor, reached.is_set()


def without_thoughts(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [update for update in updates if update["sessionUpdate"] != "agent_thought_chunk"]


def assert_begins_with(replay: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    """The replay begins with what was shown; the last text may have been cut off."""
    assert replay[: len(shown) - 1] == shown[:-1]
    last, same = shown[-1], replay[len(shown) - 1]
    if last["sessionUpdate"] == "agent_message_chunk":
        assert same["content"]["text"].startswith(last["content"]["text"])
        assert {**same, "content": None} == {**last, "content": None}
    else:
        assert same == last


@pytest.mark.parametrize("nth", every_nth(range(1, UPDATES + 1), 5, first=2))
async def test_a_load_shows_what_was_shown_and_the_session_goes_on(scripted: Path, folder: Path, nth: int) -> None:
    session, editor, killed = await play_until(scripted, folder, nth)
    asked = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": PROMPT}}
    async with editing(scripted) as other:
        await other.load(folder, session)
        replay = other.shown(session)
        stop = await other.say(session, PROMPT)
        await other.load(folder, session)

    assert_begins_with(without_thoughts(replay), without_thoughts([asked, *editor.shown(session)]))
    started = {update["toolCallId"] for update in replay if update["sessionUpdate"] == "tool_call"}
    ended = [update for update in replay if update.get("status") in ("completed", "failed")]
    assert sorted(update["toolCallId"] for update in ended) == sorted(started), "every call has one result"
    assert all(update["content"] for update in ended)
    if not killed:
        assert replay == [asked, *editor.shown(session)], "without a crash the replay is exact, thoughts included"
    assert stop == "end_turn"


async def test_a_call_that_was_cut_off_is_shown_as_failed_with_an_unknown_outcome(home: Path, folder: Path) -> None:
    async with editing(home, wait=False) as editor:
        session = await editor.new(folder)
        turn = asyncio.create_task(editor.say(session, 'use tool terminal {"command": "echo a > a; sleep 100"}'))
        await editor.wait_for(lambda: (folder / "a").exists() or any("status" in u for _, u in editor.updates))
        await editor.wait_for(lambda: any(u.get("status") == "in_progress" for _, u in editor.updates))
        editor.process.kill()
        await editor.process.wait()
        turn.cancel()
    async with editing(home) as other:
        await other.load(folder, session)
        [ended] = [update for update in other.shown(session) if update.get("rawOutput")]

    assert (ended["status"], ended["rawOutput"]["outcome"]) == ("failed", "unknown")
    assert "unknown" in ended["content"][0]["content"]["text"]
    assert "the turn was interrupted" in other.text(session)


async def test_an_agent_ends_with_its_editor_while_a_turn_of_a_killed_one_is_open(home: Path, folder: Path) -> None:
    async with editing(home) as other, editing(home, wait=False) as editor:
        session = await editor.new(folder)
        await other.load(folder, session)
        turn = asyncio.create_task(editor.say(session, 'use tool terminal {"command": "sleep 100"}'))
        await other.wait_for(lambda: any(u.get("status") == "in_progress" for _, u in other.updates))
        editor.process.kill()
        await editor.process.wait()
        turn.cancel()

    assert other.process.returncode == 0, "it has not waited for a turn that it does not run"
