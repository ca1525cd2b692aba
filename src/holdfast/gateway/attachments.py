"""Saves attachments as files of the session. The model gets their paths, and small images directly."""

import asyncio
import base64
import logging
import re
from pathlib import Path

import msgspec

from holdfast.gateway import voice
from holdfast.gateway.port import Attachment, Platform
from holdfast.gateway.voice import Transcriber
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.image_format import IMAGE_TYPES
from holdfast.model.message import Content, Image, Text
from holdfast.safe_fetch import TooLarge
from holdfast.store import durable_file

logger = logging.getLogger(__name__)
MAX_IMAGE_BYTES = 3 * 1024 * 1024
"""The largest image that the model gets directly."""
MAX_NAME = 100


class FetchedAttachments(msgspec.Struct, frozen=True):
    """The message parts for the attachments, and notices to the sender about those that were not saved."""

    parts: list[Content]
    notices: list[str]


class AttachmentTarget(msgspec.Struct, frozen=True):
    """Where the attachments of a message go, and how much of them."""

    folder: Path
    message_id: str
    max_bytes: int


async def fetch_attachments(
    platform: Platform,
    attachments: tuple[Attachment, ...],
    to: AttachmentTarget,
    transcriber: Transcriber | None = None,
) -> FetchedAttachments:
    """Save the attachments. If one fails, the others and the message continue; the model gets its name and the reason."""
    found = FetchedAttachments([], [])
    for number, attachment in enumerate(attachments, 1):
        name = clean_name(attachment.name)
        try:
            target = await _fetch_one(platform, attachment, to, number)
            found.parts.extend(_to_parts(attachment, name, target))
            if transcriber is not None and voice.is_recording(attachment):
                await _add_transcript(found, transcriber, attachment, target)
        except (Invalid, Unavailable) as e:
            found.parts.append(_failure_note(name, str(e)))
            found.notices.append(f"! The attachment {name} could not be read: {e}.")
        except Exception:
            logger.exception("attachment %s of message %s could not be read", name, to.message_id)
            found.parts.append(_failure_note(name, "it could not be read"))
            found.notices.append(f"! The attachment {name} could not be read.")
    return found


async def _add_transcript(
    found: FetchedAttachments, transcriber: Transcriber, attachment: Attachment, file: Path
) -> None:
    """Add what a recording says; if that is unknown, the model and the sender are told why."""
    name = clean_name(attachment.name)
    try:
        text = await voice.transcribe(transcriber, attachment, name, file)
    except Invalid as e:
        found.parts.append(Text(f"[the recording {name} was not transcribed: {e}]"))
        found.notices.append(f"! The recording {name} could not be transcribed: {e}.")
    else:
        found.parts.append(Text(f"[transcript of the recording {name}]\n{text}"))


async def _fetch_one(platform: Platform, attachment: Attachment, to: AttachmentTarget, number: int) -> Path:
    """Save an attachment; returns its file."""
    if attachment.size is not None and attachment.size > to.max_bytes:
        raise Invalid(_size_error(attachment.size, to.max_bytes))
    target = _create_file(to.folder, f"{to.message_id}-{number}-{clean_name(attachment.name)}")
    try:
        await platform.fetch(attachment, target, to.max_bytes)
    except TooLarge as e:
        _delete_file(target)
        raise Invalid(_size_error(None, to.max_bytes)) from e
    except Exception:
        _delete_file(target)
        raise
    await asyncio.to_thread(durable_file.sync_written, target)
    return target


def _create_file(folder: Path, name: str) -> Path:
    durable_file.make_folders(folder, mode=0o700)
    target = folder / name
    target.touch(0o600)
    return target


def _delete_file(target: Path) -> None:
    target.unlink(missing_ok=True)


def _to_parts(attachment: Attachment, name: str, target: Path) -> list[Content]:
    size = target.stat().st_size
    note = Text(f"[attachment {name}, {attachment.media_type or 'unknown type'}, {size:,} bytes: {target}]")
    if attachment.media_type in IMAGE_TYPES and size <= MAX_IMAGE_BYTES:
        data = base64.b64encode(target.read_bytes()).decode("ascii")
        return [note, Image(f"data:{attachment.media_type};base64,{data}", attachment.media_type)]
    return [note]


def _failure_note(name: str, why: str) -> Text:
    return Text(f"[attachment {name} was not saved: {why}]")


def _size_error(size: int | None, limit: int) -> str:
    measured = f"it has {size:,} bytes;" if size is not None else "it is too large:"
    return f"{measured} the limit is {limit:,}"


def clean_name(name: str) -> str:
    """A file name without directories and without characters that are special in a shell."""
    cleaned = re.sub(r"[^\w.\-]+", "_", Path(name.replace("\\", "/")).name).lstrip(".-")
    return cleaned[-MAX_NAME:] or "file"
