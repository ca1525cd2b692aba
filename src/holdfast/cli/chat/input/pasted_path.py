"""Recognizes the path of an image in pasted text: what most terminals type if a file is dropped on their window."""

import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.cli.chat.attachments.mentions import mention
from holdfast.model.image_format import image_type

MAX_PATH = 4096
SIGNATURE_BYTES = 16


def image_mention(pasted: str) -> str | None:
    """The mention of the image file that the text names; None if it names none."""
    text = pasted.strip()
    if not text or len(text) > MAX_PATH or "\n" in text:
        return None
    path = next((path for path in _readings(text) if path.is_absolute() and _is_image(path)), None)
    return None if path is None else f"{mention(str(path))} "


def _readings(text: str) -> list[Path]:
    """The paths that the text may mean: as it is, quoted for a shell, or a file URL."""
    if text.startswith("file://"):
        return [Path(unquote(urlsplit(text).path))]
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    return [Path(text), *([Path(words[0])] if len(words) == 1 else [])]


def _is_image(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return image_type(file.read(SIGNATURE_BYTES)) is not None
    except (OSError, ValueError):
        return False
