"""What people send along is kept as files of the session; the model is told where, and shown what it can be shown."""

import base64
import re
from pathlib import Path

from holdfast.gateway.port import Attachment, Platform, TooLarge
from holdfast.model.errors import Unavailable
from holdfast.model.message import Content, Image, Text

SHOWN_BYTES = 3 * 1024 * 1024
"""The largest picture that is shown to the model as such."""
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_NAME = 100


async def fetch(
    platform: Platform, attachments: tuple[Attachment, ...], folder: Path, letter_id: str, max_bytes: int
) -> list[Content]:
    """The parts of a message that stand for its attachments. One that cannot be had is named with the reason."""
    parts: list[Content] = []
    for number, attachment in enumerate(attachments, 1):
        parts += await _one(platform, attachment, folder, f"{letter_id}-{number}", max_bytes)
    return parts


async def _one(platform: Platform, attachment: Attachment, folder: Path, prefix: str, max_bytes: int) -> list[Content]:
    name = clean_name(attachment.name)
    if attachment.size is not None and attachment.size > max_bytes:
        return [_lost(name, _too_large(attachment.size, max_bytes))]
    target = _place(folder, f"{prefix}-{name}")
    try:
        await platform.fetch(attachment, target, max_bytes)
    except (TooLarge, Unavailable) as e:
        _remove(target)
        return [_lost(name, _too_large(None, max_bytes) if isinstance(e, TooLarge) else str(e))]
    return _parts(attachment, name, target)


def _place(folder: Path, name: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / name
    target.touch(0o600)
    return target


def _remove(target: Path) -> None:
    target.unlink(missing_ok=True)


def _parts(attachment: Attachment, name: str, target: Path) -> list[Content]:
    size = target.stat().st_size
    told = Text(f"[attachment {name}, {attachment.media_type or 'of unknown kind'}, {size:,} bytes: {target}]")
    if attachment.media_type in PICTURES and size <= SHOWN_BYTES:
        data = base64.b64encode(target.read_bytes()).decode("ascii")
        return [told, Image(f"data:{attachment.media_type};base64,{data}", attachment.media_type)]
    return [told]


def _lost(name: str, why: str) -> Text:
    return Text(f"[attachment {name} was not kept: {why}]")


def _too_large(size: int | None, limit: int) -> str:
    measured = f"it has {size:,} bytes, and" if size is not None else "it is too large:"
    return f"{measured} the limit is {limit:,}"


def clean_name(name: str) -> str:
    """A file name that leads nowhere else and is harmless in a shell."""
    kept = re.sub(r"[^\w.\-]+", "_", Path(name.replace("\\", "/")).name).lstrip(".-")
    return kept[-MAX_NAME:] or "file"
