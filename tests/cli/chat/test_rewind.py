"""`/rewind` in a real terminal: the preview, the choice, and what is left alone."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.terminal import DOWN, ENTER, ESCAPE, Terminal


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
