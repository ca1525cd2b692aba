"""A chat in a terminal, killed and disconnected: all text that was shown is stored, and a signal adds nothing to the log."""

import contextlib
import json
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.event import Ended, Event, ModelSaid, ToolEnded, ToolStarted, TurnEnded, UserSaid
from holdfast.model.message import text_of
from holdfast.model.session import Session
from holdfast.store.repos import delegations, log, session_list
from holdfast.store.repos.session_list import SessionFilters
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.terminal import CTRL_C, ENTER, Terminal
from tests.crash import disk
from tests.crash.programs import wait_until

pytestmark = pytest.mark.crash
ROUNDS = 8
WORDS = [f"word{n}" for n in range(400)]
STOPPING = [signal.SIGTERM, signal.SIGHUP]


def script(folder: Path, *steps: dict[str, Any]) -> str:
    path = folder / "script.json"
    path.write_text(json.dumps({"steps": steps}))
    return f"scripted:{path}"


async def stored(home: Path) -> tuple[Session, list[Event]]:
    database = await open_sqlite(home / "holdfast.db")
    page = await database.read(session_list.list_page, session_list.EVERYTHING, limit=2)
    [session] = page.sessions
    entries = await database.read(log.read_complete, session)
    await database.close()
    return session, [entry.event for entry in entries]


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_promise_2_all_text_shown_before_kill_9_is_there_after_resume(tmp_path: Path, number: int) -> None:
    home = tmp_path / "home"
    text = "".join(f"{word}\n\n" if n % 7 == 6 else f"{word} " for n, word in enumerate(WORDS))
    model = script(tmp_path, {"say": text, "delay_seconds": 0.004})
    last = random.choice(WORDS[5:200])
    with Terminal(home, model=model, rows=20) as chat:
        chat.ready().say("A long story")
        chat.see(last)
        chat.kill()
    shown = re.findall(r"word\d+", chat.text)
    assert last in shown

    with Terminal(home, "chat", "--continue", model=model, rows=20) as chat:
        chat.see("Resume it?")
        chat.see(shown[-1])
        again = set(re.findall(r"word\d+", chat.text))
        assert set(shown) <= again, "shown text is shown again"
        chat.say("n")
        chat.say("What was that?")
        chat.see("❯ What was that?")
        chat.leave()

    _, events = await stored(home)
    [cut, *_] = [event for event in events if isinstance(event, ModelSaid) and event.partial]
    assert set(shown) <= set(re.findall(r"word\d+", text_of(cut.parts)))


async def test_a_message_without_an_answer_survives_the_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    model = script(tmp_path, {"say": "Thinking", "hang": True})
    with Terminal(home, model=model) as chat:
        chat.ready().say("First")
        chat.see("Thinking")
        chat.say("Second, while it works")
        chat.see("queued ❯ Second, while it works")
        chat.kill()
    script(tmp_path, {"say": "Both are answered."}, {"say": "Really both."})
    with Terminal(home, "chat", "--continue", model=model) as chat:
        chat.see("queued ❯ Second, while it works")
        chat.say("y")
        chat.see("Both are answered.")
        chat.see("❯ Second, while it works Really both.")
        chat.leave()


@pytest.mark.parametrize("number", STOPPING)
async def test_promise_3_a_signal_during_a_tool_adds_nothing_and_the_tool_runs_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    home, mark, flag = tmp_path / "home", tmp_path / "mark", tmp_path / "flag"
    command = f"echo x >> {mark}; until [ -e {flag} ]; do sleep 0.05; done; echo done"
    call = {"name": "terminal", "arguments": {"command": command}}
    model = script(tmp_path, {"call": [call]}, {"say": "The tool is done."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("Use the tool")
        chat.see("terminal echo x")
        wait_until(mark.exists, "the tool acts")
        chat.signal(number)
        flag.touch()
        assert chat.wait() == 130

    session, events = await stored(home)
    [ended] = [event for event in events if isinstance(event, ToolEnded)]
    assert ended.outcome == "ok", "the current step finished"
    assert not any(isinstance(event, TurnEnded | Ended) for event in events)
    assert session.summary.open_turn is not None

    with Terminal(home, "chat", "--continue", model=model) as chat:
        chat.see("Resume it?")
        chat.say("y")
        chat.see("The tool is done.")
        chat.leave()
    session, events = await stored(home)
    assert sum(isinstance(event, ToolStarted) for event in events) == 1
    assert mark.read_text() == "x\n"
    assert session.summary.end_reason == "cli_close"


async def test_promise_3_after_a_lost_connection_during_a_tool_the_session_can_be_resumed(tmp_path: Path) -> None:
    home, mark, flag = tmp_path / "home", tmp_path / "mark", tmp_path / "flag"
    command = f"echo x >> {mark}; until [ -e {flag} ]; do sleep 0.05; done"
    call = {"name": "terminal", "arguments": {"command": command}}
    model = script(tmp_path, {"call": [call]}, {"say": "The tool is done."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("Use the tool")
        chat.see("terminal echo x")
        wait_until(mark.exists, "the tool acts")
        chat.hang_up()
        flag.touch()
        assert chat.wait() == 130

    with Terminal(home, "chat", "--continue", model=model) as chat:
        chat.see("Resume it?")
        chat.say("y")
        chat.see("The tool is done.")
        chat.leave()
    session, _ = await stored(home)
    assert mark.read_text() == "x\n"
    assert session.summary.end_reason == "cli_close"


async def test_promise_30_a_killed_chat_waits_for_the_same_three_sub_agents(tmp_path: Path) -> None:
    home, mark, flag = tmp_path / "home", tmp_path / "mark", tmp_path / "flag"
    command = f"echo x >> {mark}; until [ -e {flag} ]; do sleep 0.05; done"
    child = {"steps": [{"call": [{"name": "terminal", "arguments": {"command": command}}]}, {"say": "I have counted."}]}
    (tmp_path / "child.json").write_text(json.dumps(child))
    calls = [
        {"name": "delegate", "arguments": {"task": f"Count to {n}", "model": f"scripted:{tmp_path}/child.json"}}
        for n in ("one", "two", "three")
    ]
    model = script(tmp_path, {"call": calls}, {"say": "All have counted."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("Please count")
        wait_until(lambda: mark.exists() and mark.read_text() == "x\n" * 3, "three sub-agents at work")
        chat.kill()
    flag.touch()

    with Terminal(home, "chat", "--continue", model=model) as chat:
        chat.see("waits for the same sub-agents")
        chat.say("y")
        chat.see("All have counted.")
        chat.say("/agents")
        for n in ("one", "two", "three"):
            chat.see(f"done: Count to {n}")
        chat.leave()

    database = await open_sqlite(home / "holdfast.db")
    [parent] = (await database.read(session_list.list_page, SessionFilters(), limit=9)).sessions
    children = await database.read(delegations.list_child_ids, parent.id)
    logs = [await database.read(log.read, one) for one in (parent.id, *children)]
    await database.close()
    assert len(children) == 3
    assert [[type(one.event) for one in entries].count(TurnEnded) for entries in logs] == [1] * 4, "each ended once"
    results = [one.event for one in logs[0] if isinstance(one.event, ToolEnded)]
    assert sorted(text_of(one.parts).split()[1] for one in results) == sorted(children), "each result arrived once"
    assert mark.read_text() == "x\n" * 3, "no command ran twice"


@pytest.mark.parametrize("number", STOPPING)
async def test_a_signal_at_the_prompt_exits_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    with Terminal(home) as chat:
        chat.ready().say("Hello")
        chat.see("You said: Hello")
        chat.signal(number)
        assert chat.wait() == 130

    session, events = await stored(home)
    assert (session.state, session.summary.end_reason) == ("ended", "cli_close")
    assert sum(isinstance(event, ModelSaid) for event in events) == 1


async def test_a_second_signal_exits_at_once_and_restores_the_terminal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Terminal(home, model=script(tmp_path, {"say": "Once upon", "hang": True})) as chat:
        chat.ready().say("A story")
        chat.see("Once upon")
        chat.signal(signal.SIGTERM)
        chat.see("Shutting down; finishing the current step first.")
        chat.signal(signal.SIGTERM)
        assert chat.wait() == 130
        assert chat.echoes, "the shell echoes input again"


@pytest.mark.timeout(180)
async def test_promise_4_on_a_full_disk_a_message_is_reported_as_not_saved_and_stays_in_the_input() -> None:
    with disk.mounted(32) as drive:
        with Terminal(drive.home, model="scripted:tools") as chat:
            chat.ready().say("Hello")
            chat.see("You said: Hello")
            ballast = drive.point / "ballast"
            fill(ballast)
            chat.paste(b"y" * 1_500_000)
            chat.see("[pasted #1")
            chat.press(ENTER)
            chat.see("! not sent: ")
            chat.see("❯ [pasted #1: 1,500,000 characters")
            ballast.unlink()
            chat.press(CTRL_C)
            chat.see_no("❯ [pasted #1")
            chat.say("And now?")
            chat.see("You said: And now?")
            assert chat.leave() == 0
        session, events = await stored(drive.home)

    words = [text_of(event.parts) for event in events if isinstance(event, UserSaid)]
    assert words == ["Hello", "And now?"]
    assert session.summary.end_reason == "cli_close"


def fill(ballast: Path) -> None:
    """Fill the disk to the last block."""
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
            file.flush()
