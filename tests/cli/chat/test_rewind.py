"""`/rewind` in a real terminal: the message, the preview, the choice, and what is left alone."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.terminal import DOWN, ENTER, ESCAPE, Terminal

SHIFT_DOWN = b"\x1b[1;2B"


def test_a_rewind_is_previewed_in_colours_and_restores_the_file_after_the_choice(
    home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    file, other = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("one\n")
    calls = [
        {"name": "edit_file", "arguments": {"path": "a.txt", "old": "one", "new": "two"}},
        {"name": "write_file", "arguments": {"path": "b.txt", "content": "made"}},
    ]
    with Terminal(home, model=scripted({"call": calls}, {"say": "Done."}), cwd=tmp_path, columns=160) as chat:
        chat.ready().say("Change it")
        chat.see("Done.")
        other.write_text("by hand")
        chat.say("/rewind")
        chat.see("Go back? search ❯ ▸ both: take back the conversation and restore the files")
        chat.see("-two +one")
        chat.see("it was changed by others since; not restored unless forced")
        assert b"\x1b[0;31m-two" in chat.written
        assert b"\x1b[0;32m+one" in chat.written
        chat.press(ESCAPE)
        chat.see("Nothing was changed.")
        assert file.read_text() == "two\n"
        chat.say("/rewind")
        chat.see("Go back?", times=2)
        chat.press(DOWN + ENTER)
        chat.see(f"Restored {file}")
        chat.see("b.txt was not restored: it was changed by others since")
        assert (file.read_text(), other.read_text()) == ("one\n", "by hand")
        chat.leave()


def test_the_message_to_go_back_before_is_chosen_in_a_list_that_esc_esc_opens_too(
    home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    edit = {"name": "edit_file", "arguments": {"path": "a.txt", "old": "one", "new": "two"}}
    model = scripted({"call": [edit]}, {"say": "First done."}, {"say": "Second done."})
    with Terminal(home, model=model, cwd=tmp_path, columns=120) as chat:
        chat.ready().say("Change it")
        chat.see("First done.")
        chat.say("And now?")
        chat.see("Second done.")
        chat.ready().press(ESCAPE)
        chat.press(ESCAPE)
        chat.see("Go back to before which message?")
        chat.match(r"▸ And now\? · just now")
        chat.match(r"Change it · just now · 1 file changed since")
        chat.press(DOWN)
        chat.see("-two +one")
        chat.press(ENTER)
        chat.see("Go back? search")
        chat.press(ENTER)
        chat.see(f"Restored {file} Undo the change of the files with: /rewind undo")
        chat.see("❯ Change it")
        assert file.read_text() == "one\n"
        chat.press(b"\x15")
        chat.leave()


def test_a_preview_that_is_longer_than_the_screen_can_be_scrolled(
    home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    lines = "".join(f"line {number} of many\n" for number in range(60))
    call = {"name": "write_file", "arguments": {"path": "a.txt", "content": lines}}
    with Terminal(home, model=scripted({"call": [call]}, {"say": "Done."}), cwd=tmp_path, columns=100) as chat:
        chat.ready().say("Write it")
        chat.see("Done.")
        chat.say("/rewind")
        chat.match(r"Go back\? search.*-line 9 of many.*Shift-↑↓ scrolls")
        assert "-line 50 of many" not in chat.flat.partition("Go back? search")[2]
        chat.press(SHIFT_DOWN * 9)
        chat.match(r"Go back\? search.*-line 50 of many")
        chat.press(ESCAPE)
        chat.see("Nothing was changed.")
        chat.leave()


def test_a_preview_of_many_lines_does_not_fill_the_scrollback(
    home: Path, tmp_path: Path, scripted: Callable[..., str]
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"old {number}\n" for number in range(9_000)))
    call = {"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}
    with Terminal(home, model=scripted({"call": [call]}, {"say": "Done."}), cwd=tmp_path, columns=100) as chat:
        chat.ready().say("Write it")
        chat.see("Done.")
        chat.say("/rewind")
        chat.match(r"Go back\? search.*\+old 5")
        chat.press(ESCAPE)
        chat.see("Nothing was changed.")
        assert b" more lines" in chat.written
        assert b"+old 200" not in chat.written
        chat.leave()


def test_a_rewound_message_returns_without_the_content_of_what_it_attached(home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the content of the notes\n")
    with Terminal(home, cwd=tmp_path, columns=120) as chat:
        chat.ready().say("Read @notes.txt")
        chat.see("the content of the notes")
        chat.ready().say("/rewind 1 conversation")
        chat.see("Took back 2 messages")
        chat.match(r"❯ Read @notes\.txt scripted:echo")
        chat.press(b"\x15")
        chat.leave()
