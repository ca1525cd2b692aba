"""The pure parts of the chat: Markdown blocks, shortened text, pastes, history, the status line, questions."""

import json
import os
import re
import stat
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from html.entities import html5
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from holdfast.cli.chat import shell_command
from holdfast.cli.chat.input.held_draft import PAUSE_SECONDS, HeldDraft
from holdfast.cli.chat.input.history import InputHistory
from holdfast.cli.chat.input.keyboard import Keyboard
from holdfast.cli.chat.input.paste import PasteBuffer
from holdfast.cli.chat.output import diff, markdown_stream
from holdfast.cli.chat.output.git_branch import GitBranch
from holdfast.cli.chat.output.markdown_stream import CONTINUED, MOST_LINES, MarkdownBlock, split_finished
from holdfast.cli.chat.output.painter import Painter
from holdfast.cli.chat.output.status_line import StatusFacts, TokenUsage, short_number, status_line
from holdfast.cli.chat.output.text_fit import call_line, shorten, wrap
from holdfast.cli.chat.output.theme import code_theme
from holdfast.cli.chat.output.transcript import TerminalTranscript, describe_notice
from holdfast.cli.chat.prompts import OPEN_TURN, TerminalPrompt, is_message
from holdfast.cli.chat.shell_command import LocalCommand
from holdfast.model.answer import Answer
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, ModelCalled, ModelSaid, PlanChanged, Usage
from holdfast.model.message import ToolCall
from holdfast.model.plan import PlanItem
from holdfast.model.session import Session, SessionSummary

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


# notices


def test_a_compaction_is_shown_in_one_line_with_the_tokens_before_and_after() -> None:
    event = Compacted(epoch=2, upto_seq=40, summary="s", how="summary", tokens_before=3_762, tokens_after=1_793)

    assert describe_notice(event) == "[compacted: 3,762 → 1,793 tokens]"


def test_a_plan_is_shown_as_a_checklist() -> None:
    steps = (
        PlanItem(content="Dig", status="completed"),
        PlanItem(content="Plant", status="in_progress"),
        PlanItem(content="Wait \x1b[31m"),
    )
    entry = Entry(9, 0, PlanChanged(turn_id="t", call_id="c", items=steps))

    shown = TerminalTranscript(Painter(lambda: 80), lambda: 0.0).take(entry)

    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines() == ["  ✓ Dig", "  ▸ Plant", "  ○ Wait \\x1b[31m"]


# changes to files

EDIT = """edited notes.txt
--- notes.txt
+++ notes.txt
@@ -9,4 +9,5 @@
 nine
-ten
+TEN
+ten and a half
 eleven
@@ -40,2 +41,1 @@
 forty
-forty-one
"""


def test_an_edit_is_shown_as_its_changed_lines_with_their_numbers_and_without_headers() -> None:
    lines = diff.format_diff(EDIT, "/show 7")

    assert lines is not None
    assert [(line.mark, line.text) for line in lines] == [
        (" ", "edited notes.txt"),
        (" ", "   9   nine"),
        ("-", "  10 - ten"),
        ("+", "  10 + TEN"),
        ("+", "  11 + ten and a half"),
        (" ", "  12   eleven"),
        (" ", "   ⋮"),
        (" ", "  41   forty"),
        ("-", "  41 - forty-one"),
    ]
    assert [line.style for line in lines[2:4]] == ["red", "green"]


def test_a_long_edit_shows_changed_lines_rather_than_those_around_them() -> None:
    body = "".join(f" same {n}\n+new {n}\n" for n in range(40))
    lines = diff.format_diff(f"edited x\n--- x\n+++ x\n@@ -1,40 +1,80 @@\n{body}", "/show 7")

    assert lines is not None
    assert [line.mark for line in lines] == [" ", *["+"] * 24, " "]
    assert lines[-1].text == "… 16 more changed lines (/show 7)"


TWO_FILES = """diff --git a/x b/x
--- a/x
+++ b/x
@@ -1,2 +1,2 @@
 one
-two
\\ No newline at end of file
+TWO
diff --git a/y b/y
--- a/y
+++ b/y
@@ -7 +7,2 @@ def f():
 seven
+eight
"""


def test_the_names_of_further_files_are_not_shown_as_changed_lines() -> None:
    lines = diff.format_diff(TWO_FILES, "/show 7")

    assert lines is not None
    assert [(line.mark, line.text) for line in lines] == [
        (" ", "diff --git a/x b/x"),
        (" ", "   1   one"),
        ("-", "   2 - two"),
        ("", "\\ No newline at end of file"),
        ("+", "   2 + TWO"),
        ("", "diff --git a/y b/y"),
        ("", "--- a/y"),
        ("", "+++ b/y"),
        (" ", "   7   seven"),
        ("+", "   8 + eight"),
    ]
    styled = [line for line, style in diff.style_lines(TWO_FILES) if style in ("green", "red")]
    assert styled == ["-two", "+TWO", "+eight"]


def test_the_lines_of_a_preview_with_diffs_are_coloured_within_the_hunks_only() -> None:
    text = "- a list\nrestore a.txt\n--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\nremove b.txt\n-not a change"

    styles = {line: style for line, style in diff.style_lines(text) if style}

    assert styles == {"@@ -1,2 +1,2 @@": "cyan", "-two": "red", "+2": "green"}
    assert "\n".join(line for line, _ in diff.style_lines(text)) == text


@pytest.mark.parametrize("text", ["--- a list\n- of things", "plain output", "@@ -1 +1 @@\n+x"])
def test_other_output_is_not_shown_as_a_diff(text: str) -> None:
    assert diff.format_diff(text, "") is None


# shell commands of the user


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("!ls -la", LocalCommand("ls -la", is_shared=True)),
        ("! git status", LocalCommand("git status", is_shared=True)),
        ("!!env", LocalCommand("env", is_shared=False)),
        ("![chart](https://x.example/c.png)", None),
        ("!!!", None),
        ("!rm x\nand more of a pasted text", None),
        ("wow!", None),
    ],
)
def test_one_line_after_an_exclamation_mark_is_a_command_and_nothing_else_is(
    line: str, command: LocalCommand | None
) -> None:
    assert shell_command.parse_command(line) == command


# blocks


@given(st.lists(PIECES, max_size=40).map("".join), st.data())
def test_text_is_split_the_same_way_however_it_arrives(text: str, data: st.DataObject) -> None:
    whole, rest = split_finished(text)
    found: list[MarkdownBlock] = []
    pending = ""
    while text:
        size = data.draw(st.integers(1, len(text)))
        pending, text = pending + text[:size], text[size:]
        done, pending = split_finished(pending)
        found += done

    assert (found, pending) == (whole, rest)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_word_is_lost_between_the_blocks(text: str) -> None:
    done, rest = split_finished(text)
    last = markdown_stream.unfinished_block(rest)
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
def test_a_block_is_finished_when_later_text_cannot_change_it(text: str, finished: list[str], left: str) -> None:
    done, rest = split_finished(text)

    assert ([block.text for block in done], rest) == (finished, left)


def test_a_long_code_block_is_printed_in_parts_that_belong_together() -> None:
    lines = [f"line {n}\n" for n in range(100)]
    done, rest = split_finished("```py\n" + "".join(lines))

    assert [block.spaced for block in done] == [True, *[False] * (len(done) - 1)]
    assert all(block.text.startswith("```py\n") and block.text.endswith("\n```") for block in done)
    assert rest.startswith(f"{CONTINUED}```py\n")
    assert markdown_stream.tail(rest, 3) == "```py\nline 97\nline 98\nline 99\n"
    assert all(block.text.count("line") == MOST_LINES - 1 for block in done)
    assert sum(block.text.count("line") for block in done) + rest.count("line") == 100


# painting

WORD = st.from_regex(r"[a-z]{2,8}", fullmatch=True).filter(lambda word: f"{word};" not in html5)
"""Not the name of a character: `&mu;` is shown as that character."""
SHAPES = (
    "{} {} {}",
    "Vec<{}> and {}<{}>",
    "git commit -m <{}> --{} {}",
    "<details><summary>{}</summary>{}</details> {}",
    "<div>\n{}\n{} {}\n</div>",
    "<!-- {} --> {} {}",
    '![{}](https://{}.example/{}.png "title")',
    '[{}](https://x.example/{} "{}")',
    "[{}]: https://{}.example/{}",
    "<https://{}.example/{}> {}",
    "# {} <{}> {}",
    "- {}\n  - {} <{}>",
    "3. {}\n7. {}\n8. {}",
    "> {} <{}>\n> {}",
    "| {} | <{}> |\n|---|---|\n| {} | x |",
    "| {} |\n|---|\n| {} | {} |",
    "```{}\n{} <{}>\n```",
    "```text {}\n{} {}\n```",
    "    {} <{}>\n    {}",
    "**{}** *{}* `<{}>`",
    "__{}__ _{}_ ~~{}~~",
    "{}&amp;{} &{};",
    "\\<{}> \\*{}\\* {}",
    "<script>{}</script>\n<{}/>\n<{}",
    "2*{}*4 {}**{}",
)


@given(
    st.lists(st.tuples(st.sampled_from(SHAPES), WORD, WORD, WORD), min_size=1, max_size=6), st.sampled_from([40, 100])
)
def test_every_word_of_a_reply_is_on_the_screen(shapes: list[tuple[str, str, str, str]], columns: int) -> None:
    text = "\n\n".join(shape.format(*words) for shape, *words in shapes)
    done, rest = split_finished(text)
    last = markdown_stream.unfinished_block(rest)
    paint = Painter(lambda: columns)

    drawn = "".join(paint.markdown(block.text) for block in [*done, *([last] if last else [])])

    shown = "".join(re.sub(r"\x1b\[[0-9;]*m", "", drawn).replace("▌", "").split())
    for shape, *words in shapes:
        language = 1 if shape.startswith("```{}") else 0  # its colours show it
        used = words[language : shape.count("{}")]
        assert [word for word in used if word not in shown] == [], drawn


@pytest.mark.parametrize(
    "text",
    [
        "Vec<String>",
        "git commit -m <message>",
        "<details>",
        "def __init__(self):",
        "2*3*4 = 24",
        "[label]: https://x.example",
        "a < b && c > d",
        "https://x.example/a_b_c?d=<e>",
    ],
)
def test_text_that_only_looks_like_markup_is_shown_as_it_was_written(text: str) -> None:
    assert re.sub(r"\x1b\[[0-9;]*m", "", Painter(lambda: 80).markdown(text)) == f"{text}\n"


def test_the_url_of_an_image_is_shown() -> None:
    assert "https://x.example/chart.png" in Painter(lambda: 80).markdown("![A chart](https://x.example/chart.png)")


def test_a_table_that_is_too_wide_is_shown_as_a_list_of_its_rows() -> None:
    table = "| name | value |\n|---|---|\n| averylongwordthatfills | anotherlongwordofthesame |"

    assert Painter(lambda: 40).markdown(table) == "name: averylongwordthatfills\nvalue: anotherlongwordofthesame\n"


def test_untrusted_text_never_controls_the_terminal() -> None:
    paint = Painter(lambda: 80)
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

    paint = Painter(lambda: columns)
    text = "漢字 wide and words " * 20
    for drawn in (paint.markdown(text), paint.plain(text), paint.indented("❯ ", text), paint.rows(f"/name   {text}")):
        assert max(cell_len(Text.from_ansi(line).plain) for line in drawn.split("\n")) <= columns


# shortened text


def test_a_long_text_shows_its_start_and_end_and_how_much_is_omitted() -> None:
    text = "\n".join(f"line {n}" for n in range(100))

    assert shorten(text, "/show 7", first=2, last=1) == "line 0\nline 1\n… 97 more lines (/show 7)\nline 99"
    assert shorten("short\n", "/show 7") == "short"
    assert shorten("x" * 10_000, "/show 7").endswith("… 10,000 characters in all (/show 7)")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"command": "ls\\n-l", "timeout_seconds": 3}', "tool ls -l"),
        ('{"other": 1}', 'tool {"other": 1}'),
        ("not json", "tool not json"),
        ("[1]", "tool [1]"),
    ],
)
def test_a_call_is_shown_by_its_key_argument(arguments: str, line: str) -> None:
    assert call_line(ToolCall("c", "tool", arguments)) == line


# pastes


def test_a_short_paste_goes_into_the_line_and_a_long_one_becomes_a_placeholder() -> None:
    pastes = PasteBuffer()
    long = "x" * 5000

    mark = pastes.take(long)

    assert pastes.take("two\r\nlines\rmore") == "two\nlines\nmore"
    assert mark == "[pasted #1: 5,000 characters, 1 line]"
    assert pastes.expand(f"before {mark} after") == f"before {long} after"
    assert pastes.expand("[pasted #7: typed by hand]") == "[pasted #7: typed by hand]"


def test_pasted_binary_data_becomes_a_placeholder() -> None:
    pastes = PasteBuffer()

    assert "contains control characters" in pastes.take("\udcff")
    assert "contains control characters" in pastes.take("\x1b[2J")


# history


def test_the_input_history_is_private_and_damaged_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "chat-history"
    history = InputHistory(path)
    history.store_string("first\nof two lines")
    history.store_string("\udcff")
    history.store_string("x" * 20_000)
    with path.open("a") as file:
        file.write('"cut off\n7\n')

    assert list(InputHistory(path).load_history_strings()) == ["\udcff", "first\nof two lines"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_file_that_cannot_be_written_loses_only_history(tmp_path: Path) -> None:
    history = InputHistory(tmp_path / "nowhere" / "chat-history")

    history.store_string("x")

    assert list(history.load_history_strings()) == []


# the status line


def session(**fields: object) -> Session:
    return Session("hf-1", 3, "h", None, 0, SessionSummary(model="openai:gpt", **fields))  # type: ignore[arg-type]


def test_the_status_line_shows_what_is_known() -> None:
    spent = TokenUsage()
    spent.take(Entry(1, 0, ModelSaid(turn_id="t", parts=(), usage=Usage(tokens_in=50, tokens_out=10, cost=0.25))))
    spent.take(Entry(2, 0, ModelSaid(turn_id="t", parts=(), usage=Usage(tokens_in=90, tokens_out=10, cost=0.25))))
    spent.take(Entry(3, 0, ModelCalled(purpose="goal", usage=Usage(tokens_in=5, tokens_out=1, cost=0.125))))
    assert (spent.context, spent.tokens, spent.cost) == (100, 166, 625_000_000)


def test_the_status_line_drops_the_least_important_facts_in_a_narrow_terminal() -> None:
    facts = StatusFacts(
        model="openai:gpt",
        mode="plan",
        directory="~/work/app",
        branch="main",
        share=0.1,
        tokens=12_345,
        cost=500_000_000,
        title="Plan",
        epoch=2,
        processes=2,
        busy="steer",
    )
    everything = "openai:gpt · plan · ~/work/app · main · context 10% · 12.3k tokens · $0.5000 · Plan · epoch 2 · 2 running · steer"

    assert status_line(facts, 120) == everything
    assert status_line(facts, 61) == "openai:gpt · plan · context 10% · $0.5000 · 2 running · steer"
    assert status_line(facts, 20) == "openai:gpt · plan"
    assert status_line(facts, 5) == "open…"
    assert status_line(StatusFacts(model="local:x", title="new session"), 80) == "local:x · new session"
    assert [short_number(number) for number in (999, 1_000, 999_949, 1_250_000)] == ["999", "1.0k", "999.9k", "1.2M"]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("ref: refs/heads/feature/x\n", "feature/x"),
        (f"{'0123456789' * 4}\n", "0123456"),
        ("damaged", ""),
        ("", ""),
    ],
)
def test_the_branch_is_read_from_the_repository(tmp_path: Path, head: str, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    (tmp_path / "src").mkdir()

    assert GitBranch(tmp_path / "src", lambda: 0.0).name() == name


def test_the_branch_of_a_worktree_is_read_and_a_damaged_one_has_none(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text("gitdir: ../main/.git/worktrees/tree\n")
    assert GitBranch(tree, lambda: 0.0).name() == ""

    (tmp_path / "main" / ".git" / "worktrees" / "tree").mkdir(parents=True)
    (tmp_path / "main" / ".git" / "worktrees" / "tree" / "HEAD").write_text("ref: refs/heads/topic")
    assert GitBranch(tree, lambda: 0.0).name() == "topic"

    (tree / ".git").write_bytes(b"gitdir: \0")
    assert GitBranch(tree, lambda: 0.0).name() == ""


def test_the_branch_is_read_at_most_once_a_second(tmp_path: Path) -> None:
    times = iter([0.0, 0.0, 0.9, 1.0, 1.0])
    (tmp_path / ".git").mkdir()
    head = tmp_path / ".git" / "HEAD"
    head.write_text("ref: refs/heads/one")
    branch = GitBranch(tmp_path, lambda: next(times))

    assert branch.name() == "one"
    head.write_text("ref: refs/heads/two")
    assert branch.name() == "one"
    assert branch.name() == "two"


@pytest.mark.parametrize(
    ("setting", "variable", "theme"),
    [
        ("auto", "", "ansi_dark"),
        ("auto", "15;0", "ansi_dark"),
        ("auto", "0;default;15", "ansi_light"),
        ("auto", "nonsense", "ansi_dark"),
        ("light", "15;0", "ansi_light"),
        ("dark", "0;15", "ansi_dark"),
    ],
)
def test_the_theme_follows_the_setting_or_else_the_background(
    setting: Literal["auto", "dark", "light"], variable: str, theme: str
) -> None:
    assert code_theme(setting, {"COLORFGBG": variable}) == theme


def test_code_has_other_colours_on_a_light_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    code = "```python\nimport os  # why\n```"

    assert Painter(lambda: 80).markdown(code) != Painter(lambda: 80, "ansi_light").markdown(code)


# questions


async def give(*_: object) -> str:
    return ""


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", Answer(allowed=True)),
        ("s", Answer(allowed=True, scope="session")),
        ("a", Answer(allowed=True, scope="always")),
        ("p", Answer(allowed=True, scope="always", match="prefix")),
        ("t", Answer(allowed=True, scope="always", match="tool")),
        ("n not today", Answer(allowed=False, reason="not today")),
        ("use the other folder", None),
    ],
)
def test_keys_answer_a_question_about_a_call(typed: str, answer: Answer | None) -> None:
    assert TerminalPrompt("?", give, about_call=True).parse(typed) == answer


def test_keys_for_rules_do_not_answer_other_questions() -> None:
    assert TerminalPrompt("?", give).parse("a") is None


class Typing:
    """A user who types into the input line, with a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.buffer = Buffer()
        self.draft = HeldDraft(self.buffer, lambda: self.now)

    def type(self, text: str) -> None:
        self.buffer.insert_text(text)


def test_a_line_typed_after_the_question_was_shown_is_its_answer() -> None:
    typing = Typing()
    typing.draft.show("q-1")
    typing.type("y")

    assert typing.draft.answered_question == "q-1"


def test_keys_typed_before_the_question_are_no_answer_and_return_afterwards() -> None:
    typing = Typing()
    typing.type("he")
    wait = typing.draft.show("q-1")
    typing.now += 0.1
    typing.type("y")

    assert wait == PAUSE_SECONDS
    assert typing.draft.answered_question == "", "the keys belong to the line that was started before"
    assert typing.draft.show("q-1") == pytest.approx(PAUSE_SECONDS)

    typing.now += PAUSE_SECONDS + 0.1
    typing.draft.show("q-1")
    assert typing.buffer.text == "", "the draft is held back"
    typing.type("n")
    assert typing.draft.answered_question == "q-1"
    typing.buffer.reset()
    typing.draft.show("")
    assert typing.buffer.text == "hey"


def test_an_answer_started_for_one_question_does_not_answer_the_next() -> None:
    typing = Typing()
    typing.draft.show("q-1")
    typing.type("y")
    typing.draft.show("q-2")

    assert typing.draft.answered_question == ""


def test_an_answer_to_a_closed_question_clears_the_line() -> None:
    typing = Typing()
    typing.draft.show("q-1")
    typing.type("y")
    typing.draft.show("")

    assert typing.buffer.text == ""


def test_a_message_that_is_being_typed_stays_when_the_offer_to_resume_disappears() -> None:
    typing = Typing()
    typing.draft.show(f"{OPEN_TURN}t-1")
    typing.type("rather look at")
    typing.draft.show("")

    assert typing.buffer.text == "rather look at"


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_question_is_wrapped_between_words(columns: int) -> None:
    text = "? `rm -rf --no-preserve-root x`: deletes directories recursively. Allow this?"
    lines = wrap(text, columns).split("\n")

    assert " ".join(lines) == text
    assert max(map(len, lines)) <= columns


def test_the_history_file_has_one_json_string_per_line(tmp_path: Path) -> None:
    InputHistory(tmp_path / "h").store_string('a "b"\nc')

    assert json.loads((tmp_path / "h").read_text()) == 'a "b"\nc'


# the keyboard


def test_enter_pressed_before_the_input_line_existed_is_enter() -> None:
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
    """The terminal side and the keyboard that reads it."""
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)
        with os.fdopen(theirs, "r") as stream:
            yield ours, Keyboard(stream)
    finally:
        os.close(ours)


@pytest.mark.parametrize("size", range(1, 6))
def test_a_paste_that_contains_a_paste_marker_does_not_lock_the_keyboard(size: int) -> None:
    typed = b"\x1b[200~a\x1b[200~b\x1b[201~y"
    keys: list[KeyPress] = []
    with terminal() as (ours, keyboard):
        for piece in (typed[:size], typed[size:]):
            os.write(ours, piece)
            keys += keyboard.read_keys()

    assert [key.data for key in keys] == ["a\x1b[200~b", "y"]


def test_a_partial_marker_that_nothing_follows_is_keys() -> None:
    with terminal() as (ours, keyboard):
        os.write(ours, b"\x1b")
        assert keyboard.read_keys() == []
        assert [key.key for key in keyboard.flush_keys()] == [Keys.Escape]
        os.write(ours, b"[200~")
        assert "".join(key.data for key in keyboard.read_keys()) == "[200~"


@given(st.data())
def test_a_paste_arrives_completely_however_it_is_split(data: st.DataObject) -> None:
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


@pytest.mark.parametrize(
    ("text", "question_id", "expected"),
    [
        ("What was that?", f"{OPEN_TURN}turn-1", True),
        ("n", f"{OPEN_TURN}turn-1", False),
        ("yes", f"{OPEN_TURN}turn-1", False),
        ("What was that?", "q-1", False),
    ],
)
def test_a_line_sent_after_the_offer_to_resume_was_answered_is_a_message(
    text: str, question_id: str, expected: bool
) -> None:
    assert is_message(text, question_id) is expected
