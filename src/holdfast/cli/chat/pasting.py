"""What is pasted: short text goes into the line, long or strange text stands there as a mark until it is said.

A line editor that holds megabytes is slow at every key. So it holds a mark, and the text waits beside it.
"""

import re

from holdfast.model.counted import counted

MOST_LETTERS = 2_000
MOST_LINES = 15
STRANGE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""Control characters, and the lone surrogates that stand for bytes which are no letters."""
MARK = re.compile(r"\[pasted #(\d+): [^\]]*\]")


class Pasteboard:
    """Keeps pasted texts by number for as long as the chat lasts: history may bring their marks back."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, data: str) -> str:
        """What to put into the line for a pasted text: itself, or a mark that stands for it."""
        text = data.replace("\r\n", "\n").replace("\r", "\n")
        is_strange = STRANGE.search(text) is not None
        lines = text.count("\n") + 1
        if len(text) <= MOST_LETTERS and lines <= MOST_LINES and not is_strange:
            return text
        self._texts.append(text)
        what = "not all of it text" if is_strange else counted(lines, "line")
        return f"[pasted #{len(self._texts)}: {len(text):,} characters, {what}]"

    def expand(self, line: str) -> str:
        """The line with every mark replaced by what it stands for. A mark that is not ours stays as it was typed."""
        return MARK.sub(self._text, line)

    def _text(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._texts[number - 1] if 1 <= number <= len(self._texts) else mark[0]
