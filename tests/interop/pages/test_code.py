"""Arguments of calls as a reader would write them, and code as safe HTML."""

import json
import re
import time
from html import unescape

import pytest

from holdfast.interop.pages.code import argument_fields, render_code, render_output
from holdfast.interop.pages.markdown import render


def test_arguments_are_shown_with_their_lines_and_changes_as_a_diff() -> None:
    edit = {"path": "src/a.py", "old": "x = 1\ny = 2\n", "new": "x = 1\ny = 3\n"}
    command, path, change = (
        *argument_fields("terminal", json.dumps({"command": "make\nmake test"}), 100),
        *argument_fields("edit_file", json.dumps(edit), 100),
    )

    assert (command.text, command.language) == ("make\nmake test", "bash")
    assert path.is_short and not command.is_short
    assert change.language == "diff"
    assert "-y = 2\n+y = 3" in change.text
    [_, content] = argument_fields("write_file", json.dumps({"path": "b.py", "content": "import os\n"}), 100)
    assert content.language == "python"


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    assert argument_fields("x", "{broken", 100)[0].text == "{broken"
    assert argument_fields("x", "[1, 2]", 100)[0].text == "[\n  1,\n  2\n]"
    assert argument_fields("x", "{}", 100) == []


def test_code_cannot_become_html() -> None:
    attack = '</code><script>x</script>"><img src=x>'
    for html in (
        render_code(attack, "python"),
        render_code(attack, '"><script>'),
        render_output("@@ -1 +1 @@\n+" + attack),
    ):
        assert "<script" not in html
        assert "<img" not in html
    assert "<script" not in render(f'```html\n{attack}\n```\n\n```a"b<script>\nx\n```')


def test_only_what_a_highlighter_knows_and_can_do_in_time_is_highlighted() -> None:
    assert "<span" in render_code("x = 1", "python").partition("<pre")[2]
    assert "<span" not in render_code("x = 1", "no-such-language").partition("<pre")[2]
    assert "<span" not in render_code("x = 1\n" * 10_000, "python").partition("<pre")[2]


@pytest.mark.parametrize(("language", "piece"), [("c", "\n"), ("c", "a:\n"), ("console", "a:"), ("xml+cheetah", "&\n")])
def test_code_made_to_be_slow_to_highlight_is_shown_soon_and_completely(language: str, piece: str) -> None:
    text = f"{piece * (19_000 // len(piece))} the end"
    render_code("x", language)  # loads the language
    began = time.thread_time()
    html = render_code(text, language)

    assert time.thread_time() - began < 1.0
    shown = html.partition("<code>")[2].partition("</code>")[0]
    assert unescape(re.sub("<[^>]+>", "", shown)) == text


def test_a_diff_in_a_result_is_coloured() -> None:
    html = render_output("edited\n@@ -1 +1 @@\n-old\n+new\n")

    assert 'class="gd"' in html and 'class="gi"' in html
