"""Approvals in the chat, with the real program: what is shown, what counts as an answer, and what a crash leaves."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.answer import Answer
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, sessions
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.chats import events, newest
from tests.cli.conftest import Holdfast
from tests.cli.terminal import Terminal
from tests.crash.programs import wait_until

COMMAND = "rm -rf precious; touch marked; git push --force"


def use(command: str) -> str:
    return f"use tool terminal {json.dumps({'command': command})}"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    folder = tmp_path / "precious"
    folder.mkdir()
    return folder


def answer_in_store(home: Path, given: Answer) -> None:
    """Commit an answer like a process that is killed right after it."""

    def answer(tx: Transaction) -> None:
        [question] = approvals.list_all_unanswered(tx, 2)
        approvals.answer(tx, *question.call_key, answer=given, by="chat", at=sessions.get(tx, question.session_id).seq)

    async def work() -> None:
        database = await open_sqlite(home / "holdfast.db")
        await database.write(answer)
        await database.close()

    asyncio.run(work())


def test_the_question_shows_the_whole_command_and_every_risk(home: Path, precious: Path, tmp_path: Path) -> None:
    with Terminal(home, model="scripted:tools", rows=50, columns=200) as chat:
        chat.ready().say(use(COMMAND))
        shown = chat.see("Allow this?")
        chat.say("no")
        chat.see("done: terminal denied")
        chat.leave()

    assert COMMAND in shown
    assert "`rm -rf precious`:" in shown and "`git push --force`:" in shown
    assert f"directory: {tmp_path}" in shown and "requested by: local user" in shown
    assert precious.exists() and not (tmp_path / "marked").exists()


@pytest.mark.parametrize("words", ["yes, go ahead", "yes please", "ok"])
def test_plain_approvals_allow(home: Path, precious: Path, words: str) -> None:
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(use("rm -rf precious"))
        chat.see("Allow this?")
        chat.say(words)
        chat.see("done: terminal")
        chat.leave()

    assert not precious.exists()


def test_an_answer_that_the_question_does_not_offer_is_refused_and_leaves_the_line_empty(
    home: Path, precious: Path
) -> None:
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(use("rm -rf precious && true"))
        chat.see("Allow this?")
        chat.say("p")
        chat.see("cannot be approved by a rule")
        chat.say("n")
        chat.see("[denied by you]")
        chat.see("done: terminal denied")
        chat.leave()

    assert precious.exists()


def test_other_text_repeats_the_question_and_returns_to_the_input_line(home: Path, precious: Path) -> None:
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(use("rm -rf precious"))
        chat.see("Allow this?")
        chat.say("what does that do")
        chat.see("Answer yes or no first")
        assert precious.exists()
        chat.say("y")
        chat.see("done: terminal")
        chat.see("❯ what does that do")
        chat.press("\x03")
        chat.leave()

    assert not precious.exists()


def test_a_command_that_was_always_allowed_needs_no_approval(holdfast: Holdfast, home: Path, precious: Path) -> None:
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(use("rm -rf precious"))
        chat.see("Allow this?")
        chat.say("a")
        chat.see("done: terminal")
        precious.mkdir()
        chat.say(use("rm -rf precious"))
        chat.see("done: terminal", times=2)
        chat.leave()

    assert not precious.exists()
    [rule] = holdfast("questions", "rules", "--json").json["rules"]
    assert (rule["match"], rule["pattern"], rule["created_by"]) == ("exact", "rm -rf precious", "chat")
    assert holdfast("questions", "revoke", rule["id"], "--json").json["revoked_by"] == "the command line"
    assert holdfast("questions", "rules", "--json").json["rules"] == []


def test_a_question_survives_two_kills_and_its_answer_continues_the_turn(
    holdfast: Holdfast, home: Path, precious: Path, tmp_path: Path
) -> None:
    with Terminal(home, model="scripted:tools") as first:
        first.ready().say(use(COMMAND))
        first.see("Allow this?")
        first.kill()
    [question] = holdfast("questions", "--json").json["questions"]
    with Terminal(home, "chat", "--continue", model="scripted:tools", rows=50) as second:
        second.see(f"{COMMAND} 2 risks:")
        second.see("Allow this?")
        second.say("hello, what is this?")
        second.see("Answer yes or no first")
        second.kill()
    with Terminal(home, "chat", "--continue", model="scripted:tools", rows=50) as third:
        third.see(f"{COMMAND} 2 risks:")
        third.see("Allow this?")
        assert precious.exists()
        third.say("y")
        third.see("done: terminal")
        third.leave()

    assert question["command"] == COMMAND
    assert not precious.exists() and (tmp_path / "marked").exists()
    kinds = [event["kind"] for event in events(holdfast, newest(holdfast)["id"])]
    assert kinds.count("approval_asked") == 1


def test_a_warning_in_the_log_does_not_garble_the_screen(home: Path) -> None:
    with Terminal(home, model="scripted:tools") as first:
        first.ready().say('use tool terminal {"command": "sleep 300"}')
        records = home / "processes" / "foreground"
        wait_until(lambda: any(records.glob("*.json")), "the command runs")
        first.kill()
    with Terminal(home, "--continue", model="scripted:tools") as second:
        second.see("Resume it?")
        second.say("y")
        second.see("outlived its worker and is now process")
        text = second.see("The outcome of this call is unknown")
        assert not re.search(r"sleep 300 · \d+ s", text), "nothing of the live line is left"
        second.say("/kill proc")
        second.see("stopped by the user")
        second.leave()


def test_an_answer_to_a_question_of_a_killed_chat_says_that_no_worker_runs_the_turn(
    holdfast: Holdfast, home: Path, precious: Path
) -> None:
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(use("rm -rf precious"))
        chat.see("Allow this?")
        [question] = holdfast("questions", "--json").json["questions"]
        chat.kill()

    answered = holdfast("questions", "answer", question["id"], "yes")

    assert answered.out == f"Allowed {question['id']}\n"
    assert "no worker is running the turn" in answered.err
    assert precious.exists()


def test_an_approval_that_was_committed_before_a_kill_is_shown_again_before_anything_runs(
    home: Path, precious: Path
) -> None:
    with Terminal(home, model="scripted:tools") as first:
        first.ready().say(use("rm -rf precious"))
        first.see("Allow this?")
        first.kill()
    answer_in_store(home, Answer(allowed=True))
    with Terminal(home, "chat", "--continue", model="scripted:tools", rows=50) as second:
        second.see("rm -rf precious 1 risk:")
        shown = second.see("Resume it?")
        assert precious.exists()
        second.say("y")
        second.see("done: terminal")
        second.leave()

    assert "Approved before the interruption, runs if you resume" in shown
    assert not precious.exists()


def test_text_typed_when_the_question_appears_is_not_an_answer(
    home: Path, precious: Path, scripted: Callable[..., str]
) -> None:
    call = {"name": "terminal", "arguments": {"command": "rm -rf precious"}}
    wait = {"name": "terminal", "arguments": {"command": "until [ -e go ]; do sleep 0.05; done"}}
    with Terminal(home, model=scripted({"call": [wait]}, {"call": [call]}, {"say": "Finished."})) as chat:
        chat.ready().say("Begin")
        chat.see("until [ -e go ]")
        chat.press("y")
        (precious.parent / "go").touch()
        chat.see("Allow this?")
        chat.see_no("❯ y")
        assert precious.exists()
        chat.say("n")
        chat.see("Finished.")
        chat.see("❯ y")
        chat.press("\x03")
        chat.leave()

    assert precious.exists()


# without a terminal


@pytest.fixture
def left_question(home: Path, precious: Path) -> str:
    """A command of 50 lines that waits for approval in a session whose chat was killed."""
    command = "rm -rf precious\n" + "\n".join(f"echo line {number}" for number in range(49))
    with Terminal(home, model="scripted:tools") as first:
        first.ready().say(use(command))
        first.see("Allow this?")
        first.kill()
    return command


def test_a_chat_on_a_pipe_shows_a_recovered_question_in_full_and_continues_with_the_answer(
    holdfast: Holdfast, precious: Path, tmp_path: Path, left_question: str
) -> None:
    ran = holdfast.process("chat", "--continue", input=b"what is this?\ny\n", cwd=tmp_path)

    assert ran.code == 0, ran.err
    assert "terminal wants to run this command:\n  rm -rf precious\n" in ran.out
    assert all(f"\n  {line}\n" in ran.out for line in left_question.split("\n")), "every line is shown"
    assert "\x1b" not in ran.out
    assert "? Allow this?  y = yes" in ran.out
    assert "Not sent. Answer the question with yes or no first" in ran.out
    assert "done: terminal" in ran.out, "the turn continues and its reply is shown"
    assert not precious.exists()
    kinds = [event["kind"] for event in events(holdfast, newest(holdfast)["id"])]
    assert kinds.count("approval_asked") == 1
    assert kinds.count("user_said") == 1, "text that is not an answer was not sent"


def test_a_chat_on_a_pipe_denies_a_recovered_question_with_the_reason(
    holdfast: Holdfast, precious: Path, tmp_path: Path, left_question: str
) -> None:
    ran = holdfast.process("chat", "--continue", input=b"no, it is precious\nAnd now?\n", cwd=tmp_path)

    assert ran.code == 0, ran.err
    assert precious.exists()
    log = events(holdfast, newest(holdfast)["id"])
    [answer] = [event["body"] for event in log if event["kind"] == "approval_answered"]
    assert (answer["allowed"], answer["reason"]) == (False, "it is precious")
    assert [event["kind"] for event in log].count("user_said") == 2, "the next line is a message again"
