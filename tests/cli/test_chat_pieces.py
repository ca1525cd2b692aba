"""The pure pieces of the chat: blocks of Markdown, folds, pastes, history, the status line, questions."""

import json
import os
import stat
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from holdfast.cli.chat import blocks
from holdfast.cli.chat.asking import Answer, Asked
from holdfast.cli.chat.blocks import GOES_ON, MOST_LINES, Block, cut
from holdfast.cli.chat.cells import wrapped
from holdfast.cli.chat.fold import call_line, folded
from holdfast.cli.chat.history import InputHistory
from holdfast.cli.chat.paint import Paint
from holdfast.cli.chat.pasting import Pasteboard
from holdfast.cli.chat.reading import Keyboard
from holdfast.cli.chat.status import Spent, status_line
from holdfast.cli.chat.story import aside
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, ModelSaid, Usage
from holdfast.model.message import ToolCall
from holdfast.model.session import Session, Summary

PIECES = st.sampled_from(
    [
        "# Head\n",
        "words ",
        "more\n",
        "\n",
        "- item\n",
        "  inner\n",
        "1. one\n",
        "```\n",
        "```py\n",
        "~~~\n",
        "| a |\n",
        "x",
    ]
)


# what is told beside the words


def test_a_compaction_is_told_in_one_line_with_the_tokens_before_and_after() -> None:
    event = Compacted(epoch=2, upto_seq=40, summary="s", how="summary", tokens_before=3_762, tokens_after=1_793)
    thinned = Compacted(epoch=3, upto_seq=0, summary="", how="thinned", tokens_before=900, tokens_after=400)

    assert aside(event) == (
        "[compacted to epoch 2, 3,762 → 1,793 tokens: the model is shown a summary of events up to 40]"
    )
    assert aside(thinned) == "[compacted to epoch 3, 900 → 400 tokens: the model is shown long results in part]"


# blocks


@given(st.lists(PIECES, max_size=40).map("".join), st.data())
def test_text_is_cut_alike_however_it_arrives(text: str, data: st.DataObject) -> None:
    whole, rest = cut(text)
    found: list[Block] = []
    pending = ""
    while text:
        size = data.draw(st.integers(1, len(text)))
        pending, text = pending + text[:size], text[size:]
        done, pending = cut(pending)
        found += done

    assert (found, pending) == (whole, rest)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_word_is_lost_between_the_blocks(text: str) -> None:
    done, rest = cut(text)
    last = blocks.last(rest)
    joined = "\n".join([*(block.text for block in done), *([last.text] if last else [])])

    def words(of: str) -> list[str]:
        return [line for line in of.split() if line and not line.startswith(("```", "~~~"))]

    assert words(joined) == words(text)


@pytest.mark.parametrize(
    ("text", "finished", "left"),
    [
        ("one line", [], "one line"),
        ("one\ntwo\n\n", [], "one\ntwo\n\n"),
        ("one\n\nt", ["one"], "\nt"),
        ("# Head\nt", ["# Head"], "t"),
        ("- a\n- b\n", ["- a"], "- b\n"),
        ("- a\n\n  more of a\n", [], "- a\n\n  more of a\n"),
        ("```\n\n\ncode\n", [], "```\n\n\ncode\n"),
        ("```\ncode\n```\n", ["```\ncode\n```"], ""),
        ("words\n```\nx", ["words"], "```\nx"),
        ("- a\n  ```\n  # no heading\n  ```\nb", [], "- a\n  ```\n  # no heading\n  ```\nb"),
    ],
)
def test_a_block_is_finished_when_nothing_to_come_can_change_it(text: str, finished: list[str], left: str) -> None:
    done, rest = cut(text)

    assert ([block.text for block in done], rest) == (finished, left)


def test_a_long_code_block_is_printed_in_parts_that_belong_together() -> None:
    lines = [f"line {n}\n" for n in range(100)]
    done, rest = cut("```py\n" + "".join(lines))

    assert [block.apart for block in done] == [True, *[False] * (len(done) - 1)]
    assert all(block.text.startswith("```py\n") and block.text.endswith("\n```") for block in done)
    assert rest.startswith(f"{GOES_ON}```py\n")
    assert blocks.tail(rest, 3) == "```py\nline 97\nline 98\nline 99\n"
    assert all(block.text.count("line") == MOST_LINES - 1 for block in done)
    assert sum(block.text.count("line") for block in done) + rest.count("line") == 100


# painting


def test_what_others_wrote_never_steers_the_terminal() -> None:
    paint = Paint(lambda: 80)
    nasty = "\x1b[2Jboo\x07 \x9b31m [link](javascript:alert) \u202eevil"

    for drawn in (paint.markdown(nasty), paint.plain(nasty), paint.indented("❯ ", nasty), paint.rows(nasty)):
        assert "\x1b[2J" not in drawn
        assert "\x07" not in drawn
        assert "\x9b" not in drawn
        assert "\u202e" not in drawn
        assert "\x1b]" not in drawn


@pytest.mark.parametrize("columns", [20, 40, 80, 300])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    paint = Paint(lambda: columns)
    text = "漢字 wide and words " * 20
    for drawn in (paint.markdown(text), paint.plain(text), paint.indented("❯ ", text), paint.rows(f"/name   {text}")):
        assert max(cell_len(Text.from_ansi(line).plain) for line in drawn.split("\n")) <= columns


# folds


def test_a_long_text_shows_its_ends_and_says_how_much_is_between() -> None:
    text = "\n".join(f"line {n}" for n in range(100))

    assert folded(text, "/show 7", first=2, last=1) == "line 0\nline 1\n… 97 more lines (/show 7)\nline 99"
    assert folded("short\n", "/show 7") == "short"
    assert folded("x" * 10_000, "/show 7").endswith("… 10,000 characters in all (/show 7)")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"command": "ls\\n-l", "timeout_seconds": 3}', "tool ls -l"),
        ('{"other": 1}', 'tool {"other": 1}'),
        ("not json", "tool not json"),
        ("[1]", "tool [1]"),
    ],
)
def test_a_call_is_told_by_what_it_is_about(arguments: str, line: str) -> None:
    assert call_line(ToolCall("c", "tool", arguments)) == line


# pastes


def test_a_short_paste_goes_into_the_line_and_a_long_one_stands_there_as_a_mark() -> None:
    board = Pasteboard()
    long = "x" * 5000

    mark = board.take(long)

    assert board.take("two\r\nlines\rmore") == "two\nlines\nmore"
    assert mark == "[pasted #1: 5,000 characters, 1 line]"
    assert board.expand(f"before {mark} after") == f"before {long} after"
    assert board.expand("[pasted #7: typed by hand]") == "[pasted #7: typed by hand]"


def test_pasted_bytes_that_are_no_text_stand_behind_a_mark() -> None:
    board = Pasteboard()

    assert "not all of it text" in board.take("\udcff")
    assert "not all of it text" in board.take("\x1b[2J")


# history


def test_what_was_typed_is_kept_privately_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "chat-history"
    history = InputHistory(path)
    history.store_string("first\nof two lines")
    history.store_string("\udcff")
    history.store_string("x" * 20_000)
    with path.open("a") as file:
        file.write('"cut off\n7\n')

    assert list(InputHistory(path).load_history_strings()) == ["\udcff", "first\nof two lines"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_written_costs_the_history_only(tmp_path: Path) -> None:
    history = InputHistory(tmp_path / "nowhere" / "chat-history")

    history.store_string("x")

    assert list(history.load_history_strings()) == []


# the status line


def session(**fields: object) -> Session:
    return Session("hf-1", 3, "h", None, 0, Summary(model="openai:gpt", **fields))  # type: ignore[arg-type]


def test_the_status_line_tells_what_there_is_to_tell() -> None:
    spent = Spent()
    spent.take(Entry(1, 0, ModelSaid(turn_id="t", parts=(), usage=Usage(tokens_in=50, tokens_out=10, cost=0.25))))
    spent.take(Entry(2, 0, ModelSaid(turn_id="t", parts=(), usage=Usage(tokens_in=90, tokens_out=10, cost=0.25))))

    assert (spent.context, spent.cost) == (100, 0.5)

    def line(width: int, processes: int = 0) -> str:
        found = session(title="Plan", epoch=2)
        return status_line(found, "", share=0.1, cost=0.5, busy="steer", processes=processes, width=width)

    assert line(120, 2) == "openai:gpt · Plan · epoch 2 · context 10% · $0.5000 · 2 running · steer"
    assert "running" not in line(120)
    assert line(20) == "openai:gpt · Plan"
    new = status_line(None, "local:x", share=0, cost=None, busy="queue", processes=0, width=80)
    assert new == "local:x · new session"


# questions


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", Answer(allowed=True)),
        ("Yes", Answer(allowed=True)),
        ("n", Answer(allowed=False)),
        ("no, not today", Answer(allowed=False, reason="not today")),
        ("use the other folder", Answer(allowed=False, reason="use the other folder")),
        ("yes but carefully", Answer(allowed=False, reason="yes but carefully")),
    ],
)
def test_only_a_plain_yes_allows(typed: str, answer: Answer) -> None:
    async def give(*_: object) -> str:
        return ""

    assert Asked("?", give, reasons=True).understand(typed) == answer


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_question_is_broken_between_words(columns: int) -> None:
    text = "? `rm -rf --no-preserve-root x`: it deletes folders with all that is in them. Allow it?"
    lines = wrapped(text, columns).split("\n")

    assert " ".join(lines) == text
    assert max(map(len, lines)) <= columns


def test_where_reasons_do_not_count_other_words_are_no_answer() -> None:
    async def give(*_: object) -> str:
        return ""

    assert Asked("?", give).understand("something else") is None


def test_the_file_of_the_history_holds_one_json_text_a_line(tmp_path: Path) -> None:
    InputHistory(tmp_path / "h").store_string('a "b"\nc')

    assert json.loads((tmp_path / "h").read_text()) == 'a "b"\nc'


# the keyboard


def test_enter_that_was_pressed_before_there_was_a_line_is_enter() -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"ahead\r")
    with os.fdopen(theirs, "r") as stream:
        keyboard = Keyboard(stream)
        with keyboard.raw_mode():
            ahead = keyboard.read_keys()
            os.write(ours, b"\n\r")
            later = keyboard.read_keys()
    os.close(ours)

    assert [key.key for key in ahead] == [*"ahead", Keys.ControlM]
    assert [key.key for key in later] == [Keys.ControlJ, Keys.ControlM]


@contextmanager
def terminal() -> Iterator[tuple[int, Keyboard]]:
    """Where somebody types, and the keyboard that reads it."""
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)
        with os.fdopen(theirs, "r") as stream:
            yield ours, Keyboard(stream)
    finally:
        os.close(ours)


@pytest.mark.parametrize("size", range(1, 6))
def test_a_paste_that_holds_the_mark_of_a_paste_does_not_lock_the_keyboard(size: int) -> None:
    typed = b"\x1b[200~a\x1b[200~b\x1b[201~y"
    keys: list[KeyPress] = []
    with terminal() as (ours, keyboard):
        for piece in (typed[:size], typed[size:]):
            os.write(ours, piece)
            keys += keyboard.read_keys()

    assert [key.data for key in keys] == ["a\x1b[200~b", "y"]


def test_half_a_mark_that_nothing_follows_is_keys() -> None:
    with terminal() as (ours, keyboard):
        os.write(ours, b"\x1b")
        assert keyboard.read_keys() == []
        assert [key.key for key in keyboard.flush_keys()] == [Keys.Escape]
        os.write(ours, b"[200~")
        assert "".join(key.data for key in keyboard.read_keys()) == "[200~"


@given(st.data())
def test_a_paste_arrives_whole_however_it_is_cut(data: st.DataObject) -> None:
    pasted = data.draw(st.text("ab\x1b[20~1\né", max_size=60).filter(lambda text: "\x1b[201~" not in text))
    typed = f"x\x1b[200~{pasted}\x1b[201~y".encode()
    keys: list[KeyPress] = []
    with terminal() as (ours, keyboard):
        while typed:
            size = data.draw(st.integers(1, len(typed)))
            os.write(ours, typed[:size])
            typed = typed[size:]
            keys += keyboard.read_keys()

    assert [key.data for key in keys] == ["x", pasted, "y"]
    assert keys[1].key == Keys.BracketedPaste
