"""The pickers of the chat, the user's own commands, and the list of keys, in a real terminal."""

from pathlib import Path

from tests.cli.chats import newest, said
from tests.cli.conftest import Holdfast
from tests.cli.terminal import DOWN, ENTER, TAB, Terminal


def test_the_session_list_shows_this_directory_first_and_can_be_filtered(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for place, words in ((here, "Café at the harbour"), (elsewhere, "Buoys of the north")):
        place.mkdir()
        with Terminal(home, "chat", words, cwd=place) as chat:
            chat.see(f"You said: {words}")
            chat.see(f"· {words}", limit=20)  # in the status line: the title
            chat.leave()
    with Terminal(home, "chat", "--resume", cwd=here, columns=120) as chat:
        chat.see("▸ Café at the harbour · just now · 2 messages · chat · closed · here")
        chat.see("Buoys of the north · just now")
        chat.press(TAB)
        chat.see("Tab: this directory")
        chat.see_no("Buoys")
        chat.press(TAB + TAB + "cafe")
        chat.see("Tab: all")
        chat.see_no("Buoys")
        chat.press(ENTER)
        chat.see("“Café at the harbour”: 2 messages, verified")
        chat.leave()


def test_a_model_is_chosen_from_a_list(holdfast: Holdfast, home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('fallback_models = ["scripted:tools"]\n')
    with Terminal(home) as chat:
        chat.ready().say("/model")
        chat.see("▸ scripted:echo (current)")
        chat.press(DOWN)
        chat.see("▸ scripted:tools")
        chat.press(ENTER)
        chat.see("Model changed to scripted:tools.")
        chat.say("Hello")
        chat.see("scripted:tools · ")
        chat.leave()

    assert newest(holdfast)["model"] == "scripted:tools"


def test_own_commands_are_completed_and_sent(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / ".holdfast" / "commands"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text("---\ndescription: review one file\n---\nPlease review $ARGUMENTS.")
    with Terminal(home, cwd=tmp_path) as chat:
        chat.ready().press("/rev" + TAB)
        chat.see("❯ /review")
        chat.press(" main.py" + ENTER)
        chat.see("You said: Please review main.py.")
        chat.leave()

    assert said(newest(holdfast), "user") == ["Please review main.py."]


def test_an_own_command_sends_what_was_pasted_and_attaches_what_is_mentioned(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / ".holdfast" / "commands"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text("Please review $ARGUMENTS.")
    (tmp_path / "main.py").write_text("print(1)\n")
    pasted = "\n".join(f"pasted line {number}" for number in range(40))
    with Terminal(home, cwd=tmp_path) as chat:
        chat.ready().say("!echo from a command")
        chat.see("1 line of output will be sent")
        chat.press("/review @main.py and ")
        chat.paste(pasted.encode())
        chat.see("[pasted #1:")
        chat.press(ENTER)
        chat.see("You said: Please review @main.py and pasted line 0")
        chat.leave()

    [message] = said(newest(holdfast), "user")
    assert message.startswith(f"Please review @main.py and {pasted}.")
    assert "attached file main.py" in message and "print(1)\n" in message
    assert message.endswith("from a command\n")


def test_the_keys_are_listed_and_fit_into_a_narrow_terminal(home: Path) -> None:
    with Terminal(home, columns=20) as chat:
        chat.ready().say("/help keys")
        chat.see("Ctrl-Z")
        chat.say("Hello")
        chat.see("You said: Hello")
        chat.leave()

    assert all(len(line) <= 20 for line in chat.text.split("\n"))
