"""Pasted content: short text goes into the input line; long or binary text and images become placeholders until they are sent.

A line editor with megabytes of text is slow at every key.
"""

import re
from collections.abc import Iterator

from holdfast.model.image_format import image_size, image_type
from holdfast.model.text import counted

MAX_CHARACTERS = 2_000
MAX_LINES = 15
BINARY = r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]"
"""Control characters, and lone surrogates for undecodable bytes."""
MARK = re.compile(r"\[pasted #(\d+): [^\]]*\]")
IMAGE_MARK = re.compile(r"\[image #(\d+): [^\]]*\]")


class PasteBuffer:
    """Keeps pasted texts and images by number while the chat runs: the input history may bring placeholders back."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._images: list[bytes] = []

    def take(self, data: str) -> str:
        """The text for the input line: the pasted text itself, or a placeholder."""
        text = data.replace("\r\n", "\n").replace("\r", "\n")
        is_binary = re.search(BINARY, text) is not None
        lines = text.count("\n") + 1
        if len(text) <= MAX_CHARACTERS and lines <= MAX_LINES and not is_binary:
            return text
        self._texts.append(text)
        what = "contains control characters" if is_binary else counted(lines, "line")
        return f"[pasted #{len(self._texts)}: {len(text):,} characters, {what}]"

    def expand(self, line: str) -> str:
        """Replace every placeholder by its text. An unknown placeholder stays as typed."""
        return MARK.sub(self._text, line)

    def take_image(self, content: bytes) -> str:
        """The placeholder of an image."""
        self._images.append(content)
        width, height = image_size(content) or (0, 0)
        return f"[image #{len(self._images)}: {image_type(content)}, {width}×{height}]"

    def images(self, line: str) -> Iterator[tuple[str, bytes]]:
        """The images whose placeholders are in the line, each with its name."""
        for number in sorted({int(found[1]) for found in IMAGE_MARK.finditer(line)}):
            if 1 <= number <= len(self._images):
                yield f"image #{number}", self._images[number - 1]

    def _text(self, mark: re.Match[str]) -> str:
        number = int(mark[1])
        return self._texts[number - 1] if 1 <= number <= len(self._texts) else mark[0]
