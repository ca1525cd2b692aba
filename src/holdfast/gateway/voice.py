"""Writes down voice messages and other recordings, so that the model can read what was said."""

import asyncio
import logging
from pathlib import Path
from typing import Protocol

from holdfast.gateway.port import Attachment
from holdfast.model.errors import HoldfastError, Invalid

logger = logging.getLogger(__name__)
ENDINGS = {
    "audio/ogg": ".ogg",
    "audio/opus": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/mp3": ".mp3",
    "audio/mp4": ".m4a",
    "audio/m4a": ".m4a",
    "audio/x-m4a": ".m4a",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/webm": ".webm",
    "audio/flac": ".flac",
    "audio/aac": ".aac",
}
"""Services find out the format by the ending of the name."""


class Transcriber(Protocol):
    """A service that writes down what a recording says."""

    max_bytes: int
    """The largest recording that is sent."""

    async def transcribe(self, name: str, media_type: str, content: bytes) -> str:
        """What the recording says; empty if nothing. The ending of the name says its format. Raises ProviderFailed."""


def is_recording(attachment: Attachment) -> bool:
    return attachment.media_type.startswith("audio/")


async def transcribe(transcriber: Transcriber, attachment: Attachment, name: str, file: Path) -> str:
    """What a saved recording says. Raises Invalid with the reason why that is unknown."""
    media_type = attachment.media_type.partition(";")[0].strip().lower()
    ending = "" if Path(name).suffix else ENDINGS.get(media_type, "")
    content = await asyncio.to_thread(_load, file, transcriber.max_bytes)
    try:
        text = await transcriber.transcribe(f"{name}{ending}", media_type, content)
    except HoldfastError as e:
        logger.warning("the recording %s was not transcribed: %s", name, e)
        raise Invalid(str(e)) from e
    if not text:
        raise Invalid("nothing was understood")
    return text


def _load(file: Path, max_bytes: int) -> bytes:
    size = file.stat().st_size
    if size > max_bytes:
        raise Invalid(f"it has {size:,} bytes; the limit is {max_bytes:,}")
    return file.read_bytes()
