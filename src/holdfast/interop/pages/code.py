"""Renders code, diffs and the arguments of tool calls as HTML, highlighted by class names that the stylesheet colours."""

import difflib
import json
import re
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.model.sanitize import visible

MAX_HIGHLIGHTED = 20_000
"""Characters; longer code is shown without colours, because highlighting it takes too long."""
MAX_LINE = 2_000
"""Characters; code with a longer line has no colours either. One expression of a language reads a line, for as long as the square of its length."""
MAX_CPU_SECONDS = 0.2
"""CPU time for one block, about ten times what a program of 20,000 characters takes. For many languages there are texts that take a minute."""
HUNK = re.compile(r"^@@ .* @@", re.MULTILINE)
LANGUAGES = {"terminal": {"command": "bash"}}
"""The language of an argument, by tool and name."""


class ArgumentField(msgspec.Struct, frozen=True):
    """An argument of a call, for the page. `language` is empty for plain text, `diff` for a change."""

    name: str
    text: str
    language: str = ""

    @property
    def is_short(self) -> bool:
        return not self.language and "\n" not in self.text and len(self.text) <= 100


def render_code(text: str, language: str = "") -> Markup:
    """A block of code with a copy button. An unknown language is plain text."""
    source = visible(text).removesuffix("\n")
    label = Markup('<span class="code-language">{}</span>').format(language) if language else ""
    return Markup(
        '<div class="code"><div class="code-head">{}<button class="quiet copy" type="button" data-copy>Copy</button></div>'
        '<pre tabindex="0"><code>{}</code></pre></div>'
    ).format(label, _highlight(source, language))


def render_output(text: str) -> Markup:
    """The text of a tool result: a diff in colours, or plain text."""
    return render_code(text, "diff" if HUNK.search(text) else "")


def _highlight(source: str, language: str) -> Markup:
    if not language or len(source) > MAX_HIGHLIGHTED or max(map(len, source.split("\n"))) > MAX_LINE:
        return escape(source)
    from pygments import format as format_tokens
    from pygments.lexer import DelegatingLexer
    from pygments.util import ClassNotFound

    try:
        lexer = _lexer(language.lower())
    except ClassNotFound:
        return escape(source)
    if isinstance(lexer, DelegatingLexer):  # it finds the first token when it has read the whole text
        return escape(source)
    # The formatter escapes the text; its classes are the short names of Pygments.
    return Markup(format_tokens(_limited_tokens(lexer, f"{source}\n"), _formatter()).removesuffix("\n"))  # noqa: S704


def _limited_tokens(lexer: Any, source: str) -> Iterator[tuple[Any, str]]:
    """The tokens that the lexer finds in its time; the rest of the text is one token without a colour."""
    from pygments.token import Token

    end, done = time.thread_time() + MAX_CPU_SECONDS, 0
    for _, kind, text in lexer.get_tokens_unprocessed(source):
        yield kind, text
        done += len(text)
        if time.thread_time() > end:
            yield Token.Text, source[done:]
            return


@cache
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(language, stripnl=False)


@cache
def _formatter() -> Any:
    from pygments.formatters.html import HtmlFormatter

    return HtmlFormatter(nowrap=True)


def argument_fields(tool: str, arguments: str, limit: int) -> list[ArgumentField]:
    """The arguments of a call, each as a reader would write it: text with its lines, a replacement as a diff."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return [ArgumentField("", arguments[:limit])]
    if not isinstance(given, dict):
        return [ArgumentField("", _as_text(given, limit))]
    changed = _as_change(given, limit)
    return [
        ArgumentField(str(name), _as_text(value, limit), _language(tool, str(name), given))
        for name, value in given.items()
        if not (changed and name in ("old", "new"))
    ] + changed


def _as_change(given: dict[str, object], limit: int) -> list[ArgumentField]:
    """The arguments `old` and `new` as a diff; none if the call has no such arguments."""
    old, new = given.get("old"), given.get("new")
    if not isinstance(old, str) or not isinstance(new, str):
        return []
    lines = difflib.unified_diff(old[:limit].splitlines(), new[:limit].splitlines(), lineterm="", n=2)
    return [ArgumentField("change", "\n".join(list(lines)[2:]), "diff")]


def _language(tool: str, name: str, given: dict[str, object]) -> str:
    if name == "content" and isinstance(path := given.get("path"), str):
        return _language_of_file(path)
    return LANGUAGES.get(tool, {}).get(name, "")


def _language_of_file(path: str) -> str:
    from pygments.lexers import find_lexer_class_for_filename

    found = find_lexer_class_for_filename(path.rpartition("/")[2])
    return str(found.aliases[0]) if found is not None and found.aliases else ""


def _as_text(value: object, limit: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return text[:limit]
