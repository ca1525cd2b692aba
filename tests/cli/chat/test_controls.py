"""What a user does in the chat besides sending messages: interrupt, edit the queue, search, run commands, quit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.chats import events, newest, said
from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed
from tests.cli.terminal import CTRL_C, CTRL_E, CTRL_R, CTRL_X, ENTER, ESCAPE, TAB, UP, Terminal

HANGING = {"say": "Once upon a time", "hang": True}


# interrupting


def test_esc_interrupts_the_turn(holdfast: Holdfast, home: Path, scripted: Callable[..., str]) -> None:
    with Terminal(home, model=scripted(HANGING)) as chat:
        chat.ready().say("A story")
        chat.see("Once upon a time")
        chat.press(ESCAPE)
        chat.see("[interrupted]")
        chat.leave()

    assert said(newest(holdfast), "assistant") == ["Once upon a time"]


def test_an_interrupt_returns_queued_messages_to_the_input_line_and_sends_none(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted(HANGING, {"say": "Fine."})) as chat:
        chat.ready().say("A story")
        chat.see("Once upon a time")
        chat.say("queue me")
        chat.see("queued ❯ queue me")
        chat.press(CTRL_C)
        chat.see("[interrupted]")
        chat.see_no("queued ❯")
        chat.press(" after all" + ENTER)
        chat.see("Fine.")
        chat.leave()

    assert said(newest(holdfast), "user") == ["A story", "queue me after all"]


def test_the_up_key_returns_the_newest_queued_message_to_the_input_line(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted(HANGING, {"say": "Fine."})) as chat:
        chat.ready().say("A story")
        chat.see("Once upon a time")
        chat.say("first")
        chat.see("queued ❯ first")
        chat.say("second")
        chat.see("queued ❯ second")
        chat.press(UP)
        chat.see_no("queued ❯ second")
        chat.see("❯ second")
        chat.press(CTRL_C)
        chat.see("[interrupted]")
        chat.see_no("queued ❯")
        chat.press(ENTER)
        chat.see("Fine.")
        chat.leave()

    assert said(newest(holdfast), "user") == ["A story", "first\nsecond"]


def test_messages_left_in_the_queue_by_a_crash_are_shown_with_the_available_commands(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    model = scripted(HANGING, {"say": "Fine."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("A story")
        chat.see("Once upon a time")
        chat.say("and then")
        chat.see("queued ❯ and then")
        chat.kill()
    with Terminal(home, "chat", "--continue", model=model) as chat:
        chat.see("Resume it?")
        chat.say("n")
        chat.see("queued ❯ and then")
        chat.see("not sent: /queue send sends")
        chat.say("/queue send")
        chat.see("Fine.")
        chat.see_no("queued ❯")
        chat.leave()

    assert said(newest(holdfast), "user") == ["A story", "and then"]


def test_the_offer_to_resume_says_what_was_running_and_what_will_run(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    call = {"name": "terminal", "arguments": {"command": "sleep 50; echo never"}}
    with Terminal(home, model=scripted({"say": "I wait.", "call": [call]}, {"say": "Fine."})) as chat:
        chat.ready().say("Wait a little")
        chat.see("terminal sleep 50")
        chat.kill()
    with Terminal(home, "chat", "--continue", model="scripted:echo") as chat:
        chat.see("The last turn was interrupted while it ran `terminal sleep 50; echo never`. Resume it?")
        chat.see("y = yes: tells the model that the outcome is unknown")
        chat.say("n")
        chat.see("The turn stays open. Your next message closes it")
        chat.leave()


def test_esc_in_the_process_list_of_new_cancels_it_and_the_process_can_still_be_ended(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    call = {"name": "terminal", "arguments": {"command": "sleep 300", "background": True}}
    with Terminal(home, model=scripted({"call": [call]}, {"say": "Started."})) as chat:
        chat.ready().say("Start it")
        chat.see("Started.")
        process = chat.match(r"started as process (\S+), pid")[1]
        chat.say("/new")
        chat.see("1 background process is running. Stop, keep or move?")
        chat.press(ESCAPE)
        chat.see("Cancelled; you are still in this session.")
        chat.say(f"/kill {process[:-2]}")
        chat.see(f"{process} stopped")
        chat.leave()

    assert len(holdfast("sessions", "list", "--json").json["sessions"]) == 1


# typing


def test_ctrl_r_searches_the_input_history(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("about lighthouses")
        chat.see("You said: about lighthouses")
        chat.say("about submarines")
        chat.see("You said: about submarines")
        chat.press(CTRL_R + "light")
        chat.see("I-search backward")
        chat.press(ENTER)
        chat.see_no("I-search backward")
        chat.press(ENTER)
        chat.see("You said: about lighthouses", times=2)
        chat.leave()


def test_a_completed_command_is_sent_with_one_enter(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().press("/hel" + TAB)
        chat.see("❯ /help")
        chat.press(ENTER)
        chat.see("/resume [REF]")
        chat.leave()


def test_ctrl_c_on_an_empty_line_says_how_to_quit(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().press(CTRL_C)
        chat.see("Press Ctrl-D or type /quit or exit to quit")
        chat.leave()


def test_exit_quits_and_sends_nothing_to_the_model(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("Hello")
        chat.see("You said: Hello")
        chat.say("exit")
        assert chat.wait() == 0

    assert said(newest(holdfast), "user") == ["Hello"]


def test_a_command_after_an_exclamation_mark_runs_in_the_users_shell_on_the_terminal(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    shell = tmp_path / "my shell"
    shell.write_text('#!/bin/sh\necho "by my own shell"\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    with Terminal(home, env={"SHELL": str(shell)}, cwd=tmp_path) as chat:
        chat.ready().say("!!pwd; stty size; read word; echo got $word; exit 3")
        chat.see("by my own shell")
        chat.see("30 80")
        chat.press("typed" + ENTER)
        chat.see("got typed")
        chat.see("[exit status 3]")
        # dash loses a Ctrl-C that arrives while it starts a child, so `sleep` takes its place.
        chat.say("!!echo start; exec sleep 100")
        chat.see("by my own shell start")
        chat.press(CTRL_C)
        chat.see("[ended by SIGINT]")
        chat.say("!")
        chat.see("the command is missing: type one after !")
        chat.press(CTRL_C)
        chat.say("Bye")
        chat.see("You said: Bye")
        chat.leave()

    assert str(tmp_path)[-20:] in chat.flat.replace(" ", "")
    assert said(newest(holdfast), "user") == ["Bye"]


def test_the_message_can_be_edited_in_an_editor(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home, env={"EDITOR": "sed -i -e s/one/two/ -e '$a and a line'"}) as chat:
        chat.ready().press("say one" + CTRL_X + CTRL_E)
        chat.see("say two and a line")
        chat.press(ENTER)
        chat.see("You said: say two and a line")
        chat.leave()

    assert said(newest(holdfast), "user") == ["say two\nand a line"]


@pytest.mark.parametrize(
    ("editor", "message"),
    [
        ("false", "the editor false ended with status 1; the message is unchanged"),
        ("no-such-editor -w", "cannot start the editor no-such-editor: No such file or directory"),
        ("'", "cannot parse the editor"),
        ("rm", "the editor rm left no file"),
    ],
)
def test_an_editor_that_fails_leaves_the_message_unchanged(home: Path, editor: str, message: str) -> None:
    with Terminal(home, env={"VISUAL": editor}) as chat:
        chat.ready().press("keep me" + CTRL_X + CTRL_E)
        chat.see(message)
        chat.press(ENTER)
        chat.see("You said: keep me")
        chat.leave()


def test_vim_keys_edit_the_line_and_esc_interrupts_outside_the_insert_mode(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[chat]\nkeys = "vim"\n')
    with Terminal(home, model=scripted(HANGING, {"say": "Fine."})) as chat:
        chat.ready().press("A tale" + ESCAPE)
        chat.see("vim: normal")
        chat.press("bcwstory" + ENTER)
        chat.see("Once upon a time")
        chat.press("x" + ESCAPE)
        chat.see("vim: normal")
        assert "[interrupted]" not in chat.flat
        chat.press(ESCAPE)
        chat.see("[interrupted]")
        chat.press("x")
        chat.leave()

    assert said(newest(holdfast), "user") == ["A story"]


def test_undo_returns_the_message_to_the_input_line(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("Tell me of lighthouse")
        chat.see("You said: Tell me of lighthouse")
        chat.say("/undo")
        chat.see("Your message is back in the input line")
        chat.press("s" + ENTER)
        chat.see("You said: Tell me of lighthouses")
        chat.leave()


# notices


def test_a_model_chosen_during_a_turn_answers_later_messages(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted(HANGING)) as chat:
        chat.ready().say("A story")
        chat.see("Once upon a time")
        chat.say("/model scripted:echo")
        chat.see("The running turn keeps")
        assert "busy" not in chat.flat
        chat.press(CTRL_C)
        chat.see("[model changed to scripted:echo]")
        chat.say("Hello")
        chat.see("You said: Hello")
        chat.leave()

    kinds = [event["kind"] for event in events(holdfast, newest(holdfast)["id"])]
    assert kinds.count("model_changed") == 1


def test_shift_tab_changes_the_permission_mode_before_and_during_a_session(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model="scripted:echo") as chat:
        chat.ready().press("\x1b[Z")
        chat.see("· plan ·")
        chat.say("Hello")
        chat.see("You said: Hello")
        chat.press("\x1b[Z")
        chat.see("[permission mode changed to ask]")
        chat.say("/mode trusted")
        chat.see("[permission mode changed to trusted]")
        chat.see("· trusted ·")
        chat.say("/mode yolo")
        chat.see("unknown permission mode 'yolo'")
        chat.leave()

    found = newest(holdfast)
    bodies = [event["body"] for event in events(holdfast, found["id"]) if event["kind"] == "mode_changed"]
    assert bodies == [
        {"mode": "ask", "previous": "plan", "by": "local user"},
        {"mode": "trusted", "previous": "ask", "by": "local user"},
    ]
    assert found["mode"] == "trusted"


def test_a_retried_model_call_is_shown(holdfast: Holdfast, home: Path, scripted: Callable[..., str]) -> None:
    limited = {"fail": "rate_limited", "message": "scripted is rate-limiting us (429): try again later"}
    with Terminal(home, model=scripted({**limited, "retry_after": 0.5}, {"say": "At last."})) as chat:
        chat.ready().say("Hello")
        chat.match(r"\[.*rate-limiting us \(429\); retrying in 1 s \(2/5\)\]")
        chat.see("At last.")
        chat.leave()


def test_a_retried_model_call_is_shown_in_another_terminal(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    limited = {"fail": "rate_limited", "message": "scripted is rate-limiting us (429): try again later"}
    model = scripted({"say": "Hello."}, {**limited, "retry_after": 5}, {"say": "At last."})
    with Terminal(home, model=model) as first:
        first.ready().say("Hello")
        first.see("Hello.")
        with Terminal(home, "chat", "--continue") as second:
            second.ready()
            first.say("And?")
            second.match(r"\[.*rate-limiting us \(429\); retrying in 5 s \(2/5\)\]")
            second.see("At last.")
            second.leave()
        first.leave()


def test_a_resumed_session_shows_how_many_messages_came_before(holdfast: Holdfast, home: Path, seed: Seed) -> None:
    home.mkdir()
    session_id = seed.session("About the sea", turns=8)
    with Terminal(home, "chat", "--resume", session_id) as chat:
        earlier = int(chat.match(r"(\d+) earlier messages; show them with /history")[1])
        assert chat.flat.count("❯ About the sea") == 3
        chat.say("/history")
        chat.see("About the sea", times=11)
        chat.leave()

    assert earlier == 5 * len(newest(holdfast)["messages"]) / 8


def test_an_edit_is_shown_as_its_changed_lines(
    holdfast: Holdfast, home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    (tmp_path / "notes.txt").write_text("".join(f"line {n}\n" for n in range(1, 30)))
    call = {"name": "edit_file", "arguments": {"path": "notes.txt", "old": "line 20\n", "new": "LINE TWENTY\n"}}
    with Terminal(home, model=scripted({"call": [call]}, {"say": "Done."}), cwd=tmp_path) as chat:
        chat.ready().say("Edit it")
        chat.see("Done.")
        chat.leave()

    assert "20 - line 20" in chat.flat and "20 + LINE TWENTY" in chat.flat
    assert "@@" not in chat.text and "+++" not in chat.text


# without a terminal


def test_exit_quits_a_chat_on_a_pipe(holdfast: Holdfast, home: Path) -> None:
    ran = holdfast.process("chat", "--model", "scripted:echo", input=b"Hello\nexit\nnever said\n")

    assert ran.code == 0, ran.err
    assert said(newest(holdfast), "user") == ["Hello"]


def test_a_session_resumed_on_a_pipe_shows_how_many_messages_came_before(
    holdfast: Holdfast, home: Path, seed: Seed
) -> None:
    home.mkdir()
    session_id = seed.session("About the sea", turns=3)

    ran = holdfast.process("chat", "--resume", session_id, input=b"/history 1\n")

    assert "8 earlier messages; show them with /history" in ran.out
    assert "11 earlier messages; show all with /history 12" in ran.out
