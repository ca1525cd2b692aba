"""Permission requests: durable questions that survive the agent and the editor, answered once."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp.editor import Editor, Question, editing

pytestmark = pytest.mark.process
RISKY = 'use tool terminal {"command": "rm -rf build"}'


def risky(folder: Path) -> Path:
    """A directory that a risky command deletes."""
    (folder / "build").mkdir()
    return folder / "build"


def outcome(editor: Editor, session: str) -> str:
    [ended] = [update for update in editor.shown(session) if update.get("rawOutput")]
    return str(ended["rawOutput"]["outcome"])


async def start_asking(editor: Editor, folder: Path) -> tuple[str, "asyncio.Task[str]", Question]:
    """A session whose turn waits for an answer."""
    session = await editor.new(folder)
    turn = asyncio.create_task(editor.say(session, RISKY))
    return session, turn, await editor.asked.get()


async def test_the_request_shows_what_would_run_and_allows_it_once(home: Path, folder: Path) -> None:
    build = risky(folder)
    async with editing(home) as editor:
        session, turn, question = await start_asking(editor, folder)
        existed = build.exists()
        question.answer.set_result("allow")

        assert await turn == "end_turn"
    assert existed and not build.exists()
    assert "rm -rf build" in question.call.content[0].content.text
    assert [option.kind for option in question.options] == ["allow_once", "allow_always", "allow_always", "reject_once"]
    assert outcome(editor, session) == "ok"


async def test_a_command_cannot_leave_the_code_block_of_its_request(home: Path, folder: Path) -> None:
    risky(folder)
    command = "rm -rf build\n```\n**harmless** <!-- \n````\n-->"
    async with editing(home) as editor:
        session = await editor.new(folder)
        turn = asyncio.create_task(editor.say(session, f"use tool terminal {json.dumps({'command': command})}"))
        question = await editor.asked.get()
        question.answer.set_result("reject")
        await turn

    fence, *shown, last = question.call.content[0].content.text.splitlines()
    assert fence == last == "`" * 5
    assert "  ```" in shown and "  ````" in shown


async def test_the_question_of_a_sub_agent_is_asked_in_the_editor_of_its_parent(home: Path, folder: Path) -> None:
    build = risky(folder)
    async with editing(home, choose=lambda question: "allow") as editor:
        session = await editor.new(folder)
        stop = await editor.say(session, f"use tool delegate {json.dumps({'task': RISKY})}")
        question = await editor.asked.get()

    assert stop == "end_turn"
    assert question.session_id == session
    assert "rm -rf build" in question.call.content[0].content.text
    assert not build.exists()


async def test_a_denied_call_does_not_run(home: Path, folder: Path) -> None:
    build = risky(folder)
    async with editing(home, choose=lambda question: "reject") as editor:
        session = await editor.new(folder)
        await editor.say(session, RISKY)

    assert build.exists()
    assert outcome(editor, session) == "denied"


async def test_an_answer_for_the_session_is_not_asked_again(home: Path, folder: Path) -> None:
    risky(folder)
    async with editing(home, choose=lambda question: "allow_session") as editor:
        session = await editor.new(folder)
        await editor.say(session, RISKY)
        await editor.say(session, RISKY)

        assert editor.asked.qsize() == 1


async def test_an_option_that_was_not_offered_allows_nothing(home: Path, folder: Path) -> None:
    build = risky(folder)
    async with editing(home, choose=lambda question: "allow_everything") as editor:
        await editor.say(await editor.new(folder), RISKY)

    assert build.exists()


async def test_cancelling_the_prompt_ends_the_question(home: Path, folder: Path) -> None:
    build = risky(folder)
    async with editing(home) as editor:
        session, turn, question = await start_asking(editor, folder)
        await editor.connection.cancel(session_id=session)
        question.answer.set_result(None)

        assert await turn == "cancelled"
    assert build.exists()


@pytest.mark.parametrize("killed", [True, False], ids=["the agent is killed", "the editor is gone"])
async def test_a_pending_question_is_asked_again_after_load_and_its_answer_continues_the_turn(
    home: Path, folder: Path, killed: bool
) -> None:
    build = risky(folder)
    async with editing(home, wait=not killed) as editor:
        session, turn, question = await start_asking(editor, folder)
        if killed:
            editor.process.kill()
        else:
            assert editor.process.stdin is not None
            editor.process.stdin.close()
        async with asyncio.timeout(30):
            await editor.process.wait()
        turn.cancel()
    async with editing(home) as other:
        await other.load(folder, session)
        again = await other.asked.get()
        existed = build.exists()
        again.answer.set_result("allow")
        await other.wait_for(lambda: "done: terminal" in other.text(session))

    assert existed and not build.exists()
    assert again.call.content == question.call.content
    assert (
        other.shown(session)[: len(editor.shown(session))]
        == [
            {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": RISKY}},
            *editor.shown(session),
        ][: len(editor.shown(session))]
    )
    assert outcome(other, session) == "ok"


async def test_a_question_that_is_answered_elsewhere_continues_the_turn(home: Path, folder: Path) -> None:
    build = risky(folder)
    async with editing(home) as editor:
        session, turn, question = await start_asking(editor, folder)
        listed = await holdfast(home, "questions", "list")
        await holdfast(home, "questions", "answer", listed["questions"][0]["id"], "yes")

        assert await turn == "end_turn"
        question.answer.set_result("reject")  # too late
        assert await editor.say(session, "still there?") == "end_turn"
    assert not build.exists()


async def holdfast(home: Path, *arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--home", str(home), *arguments, "--json"), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)
