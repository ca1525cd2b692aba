"""`holdfast chat` in a real terminal: what is typed, what is shown, and what the log says afterwards."""

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path

from tests.cli.chats import newest, said
from tests.cli.conftest import Holdfast
from tests.cli.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal

MARKDOWN = """# A plan

Words in **bold** and `code` of a paragraph that is long enough to be wrapped at the edge of the window.

- first item
- second item

```python
def fib(n):
    return n
```

| name | value |
|---|---|
| a | 1 |

That is all."""


# messages


def test_text_typed_during_the_start_is_sent(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.say("Typed too early")
        chat.see("You said: Typed too early")
        assert chat.leave() == 0

    assert said(newest(holdfast), "user") == ["Typed too early"]


def test_a_reply_is_shown_as_it_is_streamed_and_is_once_in_the_scrollback(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": MARKDOWN, "delay_seconds": 0.01}), rows=12) as chat:
        chat.ready().say("Make a plan")
        chat.see("That is all.")
        assert chat.leave() == 0

    lines = [line.strip() for line in chat.text.splitlines()]
    for once in ("❯ Make a plan", "A plan", "• first item", "• second item", "def fib(n):", "That is all."):
        assert lines.count(once) == 1, once
    assert "bold and code" in chat.flat
    assert "**" not in chat.text
    assert "```" not in chat.text
    session = newest(holdfast)
    assert (session["state"], session["end_reason"], said(session, "assistant")) == ("ended", "cli_close", [MARKDOWN])
    assert f"--resume {session['id']}" in chat.flat


def test_messages_typed_during_a_turn_are_shown_as_queued_and_answered_afterwards(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    model = scripted({"say": "one two three four five six seven", "delay_seconds": 0.2}, {"say": "Second."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("First")
        chat.see("one")
        chat.say("And then?")
        chat.see("queued ❯ And then?")
        chat.see("Second.")
        chat.see_no("queued")
        chat.leave()

    assert said(newest(holdfast), "user") == ["First", "And then?"]
    assert said(newest(holdfast), "assistant") == ["one two three four five six seven", "Second."]


def test_ctrl_c_interrupts_the_turn_and_keeps_its_text(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": "Once upon a time", "hang": True}, {"say": "Fine."})) as chat:
        chat.ready().say("A story")
        chat.see("Once upon a time")
        chat.press(CTRL_C)
        chat.see("interrupted")
        chat.leave()

    session = newest(holdfast)
    [reply] = [message for message in session["messages"] if message["role"] == "assistant"]
    assert (reply["content"], reply["partial"]) == ("Once upon a time", True)
    assert "Once upon a time" in chat.flat


def test_ctrl_c_at_an_idle_prompt_clears_the_line(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().press("never mind this")
        chat.see("never mind this")
        chat.press(CTRL_C)
        chat.see_no("never mind this")
        chat.say("Hello")
        chat.see("You said: Hello")
        chat.leave()

    assert said(newest(holdfast), "user") == ["Hello"]


def test_a_chat_without_a_message_leaves_no_session(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready()
        assert chat.leave() == 0

    assert holdfast("sessions", "list", "--json").json["sessions"] == []


def test_quitting_during_a_turn_ends_the_turn_and_the_session(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": "Once upon", "hang": True})) as chat:
        chat.ready().say("A story")
        chat.see("Once upon")
        chat.press(CTRL_D)
        assert chat.wait() == 0

    session = newest(holdfast)
    assert (session["state"], session["end_reason"]) == ("ended", "cli_close")
    assert said(session, "assistant") == ["Once upon"]


def test_the_first_message_after_quitting_during_a_turn_is_answered(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    model = scripted({"say": "Once upon", "hang": True}, {"say": "Hello to you."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("A story")
        chat.see("Once upon")
        assert chat.leave() == 0
    with Terminal(home, "chat", "--continue", model=model) as chat:
        chat.ready().say("Hello")
        chat.see("Hello to you.")
        chat.leave()

    assert said(newest(holdfast), "assistant") == ["Once upon", "Hello to you."]


def test_a_one_shot_turn_after_a_chat_quit_during_a_turn_is_answered(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    model = scripted({"say": "Once upon", "hang": True}, {"say": "Hello to you."})
    with Terminal(home, model=model) as chat:
        chat.ready().say("A story")
        chat.see("Once upon")
        chat.leave()

    ran = holdfast("run", "--session", newest(holdfast)["id"], "Hello")

    assert (ran.code, ran.out.strip()) == (0, "Hello to you.")


def test_a_steering_message_joins_the_turn(
    holdfast: Holdfast, home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    flag = tmp_path / "flag"
    look = {"name": "terminal", "arguments": {"command": f"until [ -e {flag} ]; do sleep 0.05; done"}}
    with Terminal(home, model=scripted({"say": "Looking.", "call": [look]}, {"say": "Joined."})) as chat:
        chat.ready().say("/busy steer")
        chat.see("* steer")
        chat.say("First")
        chat.see("terminal until")
        chat.say("Shorter, please")
        chat.see("queued ❯ Shorter, please")
        flag.touch()
        chat.see("Joined.")
        chat.leave()

    session = newest(holdfast)
    assert session["turn_count"] == 1
    assert said(session, "user") == ["First", "Shorter, please"]


def test_a_tool_is_shown_while_it_runs_and_its_output_is_shortened(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    command = f"seq 101 150; until [ -e {flag} ]; do sleep 0.05; done"
    with Terminal(home, model="scripted:tools") as chat:
        chat.ready().say(f"use tool terminal {json.dumps({'command': command})}")
        chat.match(r"terminal seq 101 150; .* · [1-9]\d* s")
        flag.touch()
        chat.see("done:")
        assert "101" in chat.text
        assert "120" not in chat.text.partition("done:")[0]
        seq = chat.match(r"more lines \(/show (\d+)\)")[1]
        chat.say(f"/show {seq}")
        chat.see("120")
        chat.leave()


def test_the_status_line_shows_model_title_and_context_use(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    home.mkdir()
    (home / "config.toml").write_text("[context]\nwindow = 8000\n")
    with Terminal(home, model=scripted({"say": "word " * 300}), columns=120) as chat:
        chat.ready().say("Talk about lighthouses")
        chat.match(r"script\.json · edits · \S+ · context \d+% · \S+ tokens.* · Talk about lighthouses")
        chat.leave()


# typing


def test_input_may_have_several_lines(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().press(f"one{ALT_ENTER}two\nthree{ENTER}")
        chat.see("You said: one two three")
        chat.leave()

    assert said(newest(holdfast), "user") == ["one\ntwo\nthree"]


def test_the_input_history_is_available_in_the_next_chat(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home) as chat:
        chat.ready().say("Remember this line")
        chat.see("You said: Remember this line")
        chat.leave()
    with Terminal(home) as chat:
        chat.ready().press(UP)
        chat.see("❯ Remember this line")
        chat.press(ENTER)
        chat.see("You said: Remember this line")
        chat.leave()

    mode = (home / "chat-history").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_commands_files_and_titles_are_completed(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    holdfast.process("run", "x", "--title", "Lighthouse keeping", env={"HOLDFAST_MODEL": "scripted:echo"})
    (tmp_path / "notes-of-may.txt").write_text("x")
    with Terminal(home, cwd=tmp_path) as chat:
        chat.ready().press("/sta")
        chat.see("/status show the state and figures of this session")
        chat.press(CTRL_C + "read @notes" + TAB)
        chat.see("❯ read @notes-of-may.txt")
        chat.press(CTRL_C + "/resume Light" + TAB)
        chat.see("❯ /resume Lighthouse keeping")
        chat.press(ENTER)
        chat.press(ENTER)
        chat.see("2 messages, verified")
        chat.leave()


def test_a_paste_of_five_megabytes_is_sent_completely(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    line = b"0123456789abcdef" * 6 + b"xyz\n"
    with Terminal(home, model=scripted({"say": "I have read it."}, window=10_000_000)) as chat:
        chat.ready().paste(line * 50_000)
        chat.see("[pasted #1: 5,000,000 characters, 50,001 lines]")
        chat.press(ENTER)
        chat.see("I have read it.")
        assert "more lines (/show" in chat.flat
        chat.leave()

    [words] = said(newest(holdfast), "user")
    assert words == (line * 50_000).decode()


def test_pasted_binary_data_neither_controls_the_terminal_nor_is_lost(holdfast: Holdfast, home: Path) -> None:
    data = bytes(range(256)).replace(b"\r", b"") + b"\x1b]0;owned\x07\x1b[2J"
    with Terminal(home) as chat:
        chat.ready().paste(data)
        chat.see("contains control characters]")
        chat.press(ENTER)
        chat.see("]0;owned", times=2)
        chat.leave()

    [words] = said(newest(holdfast), "user")
    assert words.encode("utf-8", "surrogateescape") == data
    assert b"\x1b]0;owned" not in chat.written
    assert b"\x1b[2J" not in chat.written


# terminals


def test_a_terminal_of_forty_columns_is_wide_enough(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": MARKDOWN}), columns=40) as chat:
        chat.ready().say("Make a plan for the whole of next year, please")
        chat.see("That is all.")
        chat.say("/help")
        chat.see("/quit")
        chat.leave()

    assert "for the whole of next year, please" in chat.flat
    assert "end this session; your next message" in chat.flat


def test_without_colours_nothing_is_coloured(holdfast: Holdfast, home: Path, scripted: Callable[..., str]) -> None:
    with Terminal(home, model=scripted({"say": MARKDOWN}), env={"NO_COLOR": "1"}) as chat:
        chat.ready().say("Make a plan")
        chat.see("That is all.")
        chat.leave()

    codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", chat.written) for code in found.split(b";")}
    assert not {code for code in codes if re.fullmatch(rb"[349][0-7]|10[0-7]|38|48", code)}


def test_a_terminal_without_cursor_control_uses_line_mode(holdfast: Holdfast, home: Path) -> None:
    with Terminal(home, env={"TERM": "dumb"}) as chat:
        chat.see("you ▸")
        chat.press("Hello\n")
        chat.see("You said: Hello")
        chat.press("/status\n")
        chat.see("state: waiting")
        chat.press(CTRL_D)
        assert chat.wait() == 0


def test_a_broken_config_file_says_where(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[agent]\nbuzy = "queue"\n')
    with Terminal(home) as chat:
        assert chat.wait() == 2

    shown = chat.flat.replace(" ", "")  # however the screen has wrapped the lines
    assert "config.toml" in shown
    assert "buzy" in shown
