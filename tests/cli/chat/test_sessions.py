"""Sessions in the chat: resumed, forked, closed, rewound, watched by two terminals, and with questions."""

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.answer import Answer
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, session_list
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.chats import events, newest, said
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.terminal import CTRL_C, CTRL_D, DOWN, ENTER, ESCAPE, Terminal

ECHO = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:echo"}
RISKY = 'use tool terminal {"command": "rm -rf precious"}'


def told(holdfast: Holdfast, *words: str, title: str = "") -> str:
    """The id of a session with this message."""
    session_id = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_MODEL", "scripted:echo")
        for word in words:
            options = ["--session", session_id] if session_id else ["--title", title] if title else []
            session_id = holdfast("run", word, *options, "--json").json["session_id"]
    return session_id


def kinds(holdfast: Holdfast, session_id: str) -> list[str]:
    return [event["kind"] for event in events(holdfast, session_id)]


# resume


def test_promise_5_a_session_is_resumed_by_title_from_another_directory_and_verified(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    session_id = told(holdfast, *(f"Word {n}" for n in range(6)), title="My plan")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Terminal(home, "chat", "--resume", "My plan", cwd=elsewhere) as chat:
        chat.see("12 messages, verified (hash")
        chat.see("You said: Word 5")
        assert "Word 2" not in chat.flat, "the last exchanges are enough"
        chat.say("More")
        chat.see("You said: More")
        chat.leave()

    session = newest(holdfast)
    assert session["id"] == session_id
    assert said(session, "user") == [*(f"Word {n}" for n in range(6)), "More"]
    assert holdfast("sessions", "verify", session_id).code == 0


def test_a_resumed_session_shows_its_own_model_and_not_that_of_the_settings(holdfast: Holdfast, home: Path) -> None:
    session_id = told(holdfast, "Hello")

    with Terminal(home, "chat", "--resume", session_id, model="scripted:tools") as chat:
        chat.ready()
        chat.see("Holdfast · scripted:echo ·")
        chat.leave()


def test_continue_resumes_the_last_chat_of_the_directory(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        with Terminal(home, cwd=folder) as chat:
            chat.ready().say(f"In {folder.name}")
            chat.see("You said:")
            chat.leave()
    with Terminal(home, "chat", "--continue", cwd=here) as chat:
        chat.see("2 messages, verified")
        assert "In here" in chat.flat
        chat.leave()
    with Terminal(home, "chat", "--continue", cwd=tmp_path) as chat:
        assert chat.wait() == 3
        assert "no chat in" in chat.flat


def test_a_session_of_another_directory_is_resumed_in_its_directory_until_it_is_left(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    (there / "notes.txt").write_text("from there\n")
    with Terminal(home, "chat", "--title", "Mine", cwd=there) as chat:
        chat.ready().say("Hello")
        chat.see("You said: Hello")
        chat.leave()
    with Terminal(home, "chat", "--resume", "Mine", cwd=here, columns=160) as chat:
        chat.see(f"The tools of this session work in {there}.")
        chat.say("!pwd > where; cat where")
        chat.see(f"! pwd > where; cat where {there} [1 line of output will be sent with your next message]")
        chat.say("Read @notes.txt")
        chat.see("[attached file notes.txt: 1 line, 11 bytes]")
        chat.see("from there")
        chat.say("/new")
        chat.see("Your next message starts a new session.")
        chat.say("!pwd")
        chat.see(f"! pwd {here} [1 line of output will be sent with your next message]")
        chat.leave()

    assert (there / "where").exists()


def test_resume_closes_the_session_in_order_and_reopens_the_other(holdfast: Holdfast, home: Path) -> None:
    other = told(holdfast, "Elsewhere", title="The other")
    with Terminal(home) as chat:
        chat.ready().say("Here")
        chat.see("You said: Here")
        first = newest(holdfast)["id"]
        chat.say("/resume The other")
        chat.see("2 messages, verified")
        chat.see("You said: Elsewhere")
        assert kinds(holdfast, other)[-1] == "reopened"
        left = holdfast("sessions", "show", first, "--json").json
        assert (left["state"], left["end_reason"]) == ("ended", "cli_close")
        chat.say("And on")
        chat.see("You said: And on")
        chat.leave()

    assert said(holdfast("sessions", "show", other, "--json").json, "user") == ["Elsewhere", "And on"]
    assert kinds(holdfast, first)[-1] == "ended", "it was closed once and not reopened"


def test_resume_without_a_name_opens_a_list_that_narrows_and_shows_what_is_in_it(
    holdfast: Holdfast, home: Path
) -> None:
    told(holdfast, "About ships", title="Ships")
    told(holdfast, "About lighthouses", title="Lighthouses")
    told(holdfast, "About harbours", title="Harbours")
    with Terminal(home, "chat", "--resume") as chat:
        chat.see("Choose a session:")
        chat.see("You said: About harbours")
        chat.press(DOWN)
        chat.see("You said: About lighthouses")
        chat.press("ships")
        chat.see("You said: About ships")
        chat.press(ENTER)
        chat.see("“Ships”: 2 messages, verified")
        chat.say("/resume")
        chat.see("Choose a session:", times=2)
        chat.see("You said: About harbours")  # the list is drawn and listens
        chat.press(ESCAPE)
        chat.see("Cancelled.")
        chat.leave()


def test_an_unknown_session_is_reported_and_leaves_nothing(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("Here")
        chat.see("You said: Here")
        chat.say("/resume nowhere-at-all")
        chat.see("! no session has the id, alias or title 'nowhere-at-all'")
        chat.say("Still here")
        chat.see("You said: Still here")
        chat.leave()

    assert said(newest(holdfast), "user") == ["Here", "Still here"]


# changing


def test_new_starts_another_session_and_fork_continues_in_a_copy(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("One")
        chat.see("You said: One")
        first = newest(holdfast)["id"]
        chat.say("Two")
        chat.see("You said: Two")
        chat.say("/fork 4")
        chat.see(f"This is a copy of {first}")
        chat.say("Instead of two")
        chat.see("You said: Instead of two")
        fork = newest(holdfast)
        chat.say("/new A fresh start")
        chat.see("Your next message starts a new session")
        chat.say("Hello")
        chat.see("You said: Hello")
        chat.leave()

    assert fork["parent_id"] == first
    assert said(fork, "user") == ["One", "Instead of two"]
    assert said(holdfast("sessions", "show", first, "--json").json, "user") == ["One", "Two"]
    assert newest(holdfast)["title"] == "A fresh start"
    everything = holdfast("sessions", "list", "--json").json["sessions"]
    assert [session["end_reason"] for session in everything] == ["cli_close"] * 3


def test_undo_rewinds_and_deletes_nothing(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("Keep this")
        chat.see("You said: Keep this")
        chat.say("Forget this")
        chat.see("You said: Forget this")
        chat.say("/undo")
        chat.see("Undid 2 messages, starting with “Forget this”.")
        chat.see("back in the input line.")
        chat.press(CTRL_C)
        chat.leave()
    session_id = newest(holdfast)["id"]
    with Terminal(home, "chat", "--resume", session_id) as chat:
        chat.see("You said: Keep this")
        assert "Forget this" not in chat.flat
        chat.leave()

    assert said(newest(holdfast), "user") == ["Keep this", "Forget this"]
    assert "rewound" in kinds(holdfast, session_id)


def test_retry_sends_the_same_message_again(holdfast: Holdfast, home: Path, scripted: Callable[..., str]) -> None:
    with Terminal(home, model=scripted({"say": "An answer."}, loop=True)) as chat:
        chat.ready().say("Tell me")
        chat.see("An answer.")
        chat.say("/retry")
        chat.see("An answer.", times=2)
        chat.leave()

    session = newest(holdfast)
    assert said(session, "user") == ["Tell me", "Tell me"]
    [rewound] = [event for event in events(holdfast, session["id"]) if event["kind"] == "rewound"]
    assert rewound["body"]["why"] == "retry"


def test_promise_18_messages_typed_during_a_compaction_are_queued_and_ctrl_c_stops_it(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f'[context]\nsummary_model = "{scripted({"hang": True})}"\n')
    session_id = told(holdfast, *(f"{n} " + "rain and roses " * 500 for n in range(3)))

    with Terminal(home, "chat", "--resume", session_id) as chat:
        chat.ready().say("/compact")
        chat.see("Compacting …")
        chat.say("Meanwhile")
        chat.see("queued ❯ Meanwhile")
        chat.say("/new")
        chat.see("a compaction is running here")
        chat.say("/compact")
        chat.see("wait for its end, or interrupt it")
        chat.press(CTRL_C)
        chat.see("Compaction cancelled")
        chat.see("You said: Meanwhile")
        assert chat.leave() == 0

    assert said(newest(holdfast), "user")[-1] == "Meanwhile"
    assert "compacted" not in kinds(holdfast, session_id)


def test_titles_are_made_of_the_first_exchange_and_can_be_changed(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home, columns=120) as chat:
        chat.ready().say("How do lighthouses of the northern coast work at night?")
        chat.see("· How do lighthouses of the north…")
        chat.say("/title Northern lights")
        chat.see("[titled 'Northern lights']")
        chat.see("· Northern lights")
        chat.leave()
        assert "Titled" not in chat.flat, "it is shown once"

    titled = [event["body"] for event in events(holdfast, newest(holdfast)["id"]) if event["kind"] == "titled"]
    assert [(body["title"], body.get("by", "user")) for body in titled] == [
        ("How do lighthouses of the northern…", "model"),
        ("Northern lights", "user"),
    ]


def test_a_title_that_another_session_has_means_the_newer_and_says_so(holdfast: Holdfast, home: Path) -> None:
    told(holdfast, "x", title="Twice")
    with Terminal(home) as chat:
        chat.ready().say("Hello")
        chat.see("You said: Hello")
        chat.say("/title Twice")
        chat.see("! 1 other session with this title")
        chat.leave()


@pytest.mark.parametrize("form", ["md", "html", "jsonl"])
def test_a_session_is_exported_from_the_chat(holdfast: Holdfast, home: Path, tmp_path: Path, form: str) -> None:
    with Terminal(home) as chat:
        chat.ready().say("Hello")
        chat.see("You said: Hello")
        chat.say(f"/export {form} out.{form}")
        chat.see("Exported to")
        chat.leave()

    assert "You said: Hello" in (tmp_path / f"out.{form}").read_text()


def test_an_unknown_command_suggests_the_nearest_names(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("/resum")
        chat.see("unknown command /resum; did you mean /resume?")
        chat.say("/etc/hosts is a file")
        chat.see("You said: /etc/hosts is a file")
        chat.leave()


# an interrupted turn


@pytest.mark.parametrize("answer", ["y", "n"])
def test_an_interrupted_turn_is_offered_for_resume(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str], answer: str
) -> None:
    with Terminal(home, model=scripted({"say": "Half of it", "hang": True})) as chat:
        chat.ready().say("Tell me all")
        chat.see("Half of it")
        chat.kill()
    scripted({"say": "Half of it and the rest."}, {"say": "Something else."})
    with Terminal(home, "chat", "--continue") as chat:
        chat.see("Half of it")
        chat.see("The last turn was interrupted while the model was answering “Tell me all”. Resume it?")
        chat.say(answer)
        if answer == "y":
            chat.see("and the rest.")
        else:
            chat.see("The turn stays open")
            chat.say("Never mind")
            chat.see("interrupted")
            chat.see("❯ Never mind")
        chat.leave()

    session = newest(holdfast)
    assert said(session, "user") == (["Tell me all"] if answer == "y" else ["Tell me all", "Never mind"])
    assert session["end_reason"] == "cli_close"


# questions


def test_a_dangerous_command_needs_approval_in_place(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(RISKY)
        chat.see("Allow this? y = yes")
        chat.say("no, I still need it")
        chat.see("I still need it")
        chat.see("done: terminal denied")
        chat.see_no("Allow this?")
        assert precious.exists()
        chat.say(RISKY)
        chat.see("Allow this? y = yes")
        chat.say("y")
        chat.see("done: terminal:", times=1)
        chat.leave()

    assert not precious.exists()
    refused = said(newest(holdfast), "tool")[0]
    assert "Approval was denied: I still need it" in refused, "the model gets the reason"
    answers = [e["body"] for e in events(holdfast, newest(holdfast)["id"]) if e["kind"] == "approval_answered"]
    assert [(body["allowed"], body.get("reason", "")) for body in answers] == [(False, "I still need it"), (True, "")]


def test_a_question_that_is_answered_elsewhere_disappears(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()

    def answer(tx: Transaction) -> None:
        [session] = session_list.list_page(tx, session_list.SessionFilters(), limit=2).sessions
        [question] = approvals.list_unanswered(tx, session.id)
        approvals.answer(
            tx, session.id, question.turn_id, question.call_id, answer=Answer(allowed=False), by="somebody", at=1
        )

    async def elsewhere() -> None:
        database = await open_sqlite(home / "holdfast.db")
        await database.write(answer)
        await database.close()

    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(RISKY)
        chat.see("Allow this?")
        asyncio.run(elsewhere())
        chat.see_no("Allow this?")
        chat.see("[denied by somebody]")
        chat.see("done: terminal denied")
        chat.leave()

    assert (tmp_path / "precious").exists()


# two terminals


def test_two_terminals_on_one_session_show_the_same_and_both_can_send(
    holdfast: Holdfast, home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    flag = tmp_path / "flag"
    look = {"name": "terminal", "arguments": {"command": f"until [ -e {flag} ]; do sleep 0.05; done"}}
    model = scripted(
        {"say": "one two", "call": [look]}, {"say": "seven eight"}, {"say": "To the second."}, {"say": "To the first."}
    )
    with Terminal(home, model=model) as first:
        first.ready().say("Begin")
        first.see("terminal until")
        with Terminal(home, "chat", "--continue", model=model) as second:
            second.see("It is open in another terminal (chat, pid")
            second.see("one two")
            second.say("From the second")
            second.see("queued ❯ From the second")
            first.see("queued ❯ From the second")
            flag.touch()
            for chat in (first, second):
                chat.see("seven eight")
                chat.see("❯ From the second To the second.")
            first.say("From the first")
            for chat in (first, second):
                chat.see("❯ From the first To the first.")
            first.press(CTRL_D)
            assert first.wait() == 0
            second.see("the other terminal closed the session; this terminal owns it now")
            assert newest(holdfast)["state"] == "waiting"
            second.leave()

    session = newest(holdfast)
    assert said(session, "user") == ["Begin", "From the second", "From the first"]
    assert (session["state"], session["end_reason"]) == ("ended", "cli_close")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_message_typed_just_before_quitting_is_kept_and_its_turn_ends(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str], is_first: bool
) -> None:
    before = [] if is_first else [{"say": "Hello."}]
    with Terminal(home, model=scripted(*before, {"say": "Half of it", "hang": True})) as chat:
        chat.ready()
        if before:
            chat.say("Hi")
            chat.see("Hello.")
        chat.press(f"Note this{ENTER}{CTRL_D}")
        assert chat.wait() == 0

    session = newest(holdfast)
    assert said(session, "user") == (["Note this"] if is_first else ["Hi", "Note this"])
    assert (session["state"], session["end_reason"]) == ("ended", "cli_close")


def test_the_second_terminal_takes_over_when_the_first_is_killed(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": "Half of it", "hang": True})) as first:
        first.ready().say("Begin")
        first.see("Half of it")
        scripted({"say": "Half of it and the rest."})
        with Terminal(home, "chat", "--continue") as second:
            second.see("Half of")
            first.kill()
            second.see("the other terminal died; this terminal owns the session now")
            second.see("Resume it?")
            second.say("y")
            second.see("and the rest.")
            second.leave()

    session = newest(holdfast)
    assert said(session, "user") == ["Begin"]
    assert session["end_reason"] == "cli_close"


def test_quitting_a_terminal_that_only_watches_does_not_end_the_turn_of_the_other(
    holdfast: Holdfast, home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    flag = tmp_path / "flag"
    look = {"name": "terminal", "arguments": {"command": f"until [ -e {flag} ]; do sleep 0.05; done"}}
    model = scripted({"say": "I look.", "call": [look]}, {"say": "Here it is."})
    with Terminal(home, model=model) as first:
        first.ready().say("Look for it")
        first.see("terminal until")
        with Terminal(home, "chat", "--continue", model=model) as second:
            second.see("terminal until")
            assert second.leave() == 0
        flag.touch()
        first.see("Here it is.")
        first.leave()

    assert "[interrupted" not in first.flat


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_terminal_that_watches_a_turn_is_nearly_idle(
    home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    command = f"until [ -e {tmp_path}/flag ]; do sleep 0.05; done"
    model = scripted({"call": [{"name": "terminal", "arguments": {"command": command}}]}, {"say": "Finished."})
    with Terminal(home, model=model) as first:
        first.ready().say("Begin")
        first.see("terminal until")
        with Terminal(home, "chat", "--continue", model=model) as second:
            start = int(second.match(r" · (\d+) s")[1])
            before = cpu_seconds(second.pid)
            later = "|".join(map(str, range(start + 4, start + 60)))
            end = int(second.match(rf" · ({later}) s")[1])
            used = cpu_seconds(second.pid) - before
            (tmp_path / "flag").touch()
            second.see("Finished.")
            second.leave()
        first.leave()

    assert used < 0.25 * (end - start - 1), "it waits for changes; a loaded machine gives it less CPU time, not more"


def test_a_stopped_terminal_is_named_to_the_one_that_waits(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": "Half of it", "hang": True})) as first:
        first.ready().say("Begin")
        first.see("Half of it")
        session_id = newest(holdfast)["id"]
        with Terminal(home, "chat", "--continue") as second:
            second.see("Half of")
            first.signal(signal.SIGSTOP)
            second.see(f"held by process {first.pid}, which is stopped (Ctrl-Z)")
            [worker] = [one for one in holdfast("workers", "--json").json["workers"] if one["pid"] == first.pid]
            assert worker["state"] == "stopped"
            assert f"stopped: process {first.pid} is stopped" in holdfast("why", session_id).out
            holdfast("janitor", "--once")
            first.signal(signal.SIGCONT)
            second.see_no("which is stopped")
            first.press(CTRL_C)
            second.see("[interrupted")
            second.leave()
        first.leave()


def test_a_turn_of_a_killed_terminal_is_offered_here(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    model = scripted({"say": "Welcome."}, {"say": "Half of it", "hang": True})
    with Terminal(home, model=model) as first:
        first.ready().say("Begin")
        first.see("Welcome.")
        with Terminal(home, "chat", "--continue") as second:
            second.see("It is open in another terminal")
            second.say("Go on")
            first.see("Half of it")
            second.kill()
        first.see("Resume it?")
        first.say("n")
        first.see("The turn stays open")
        first.see_no("Resume it?")
        first.leave()

    assert newest(holdfast)["state"] == "interrupted"


def test_a_turn_that_another_terminal_left_open_is_offered_for_resume_here(
    holdfast: Holdfast, home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    flag = tmp_path / "flag"
    look = {"name": "terminal", "arguments": {"command": f"until [ -e {flag} ]; do sleep 0.05; done"}}
    model = scripted({"say": "Welcome."}, {"say": "I look.", "call": [look]}, {"say": "Here it is."})
    with Terminal(home, model=model) as first:
        first.ready().say("Begin")
        first.see("Welcome.")
        with Terminal(home, "chat", "--continue") as second:
            second.see("It is open in another terminal")
            second.say("Look for it")
            first.see("terminal until")
            second.signal(signal.SIGTERM)
            second.see("finishing the current step first")
            flag.touch()
            assert second.wait() == 130
        first.see("Resume it?")
        first.say("y")
        first.see("Here it is.")
        first.see_no("Resume it?")
        first.leave()

    assert said(newest(holdfast), "assistant")[-1] == "Here it is."


def test_a_session_is_handed_over_when_the_user_of_the_first_terminal_agrees(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as first:
        first.ready().say("Begin")
        first.see("You said: Begin")
        with Terminal(home, "chat", "--continue") as second:
            second.see("It is open in another terminal")
            second.say("/takeover")
            second.see("Asked that terminal to hand it over")
            first.see("asks to take this session over. Hand it over?")
            first.say("y")
            first.see("handover allowed by you")
            first.see("Handed the session over to the other terminal")
            first.leave()
            second.say("Mine now")
            second.see("You said: Mine now")
            assert newest(holdfast)["state"] == "waiting", "the first left and ended nothing"
            second.leave()

    assert re.search(r"ended", kinds(holdfast, newest(holdfast)["id"])[-1])
