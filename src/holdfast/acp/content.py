"""Converts the content of prompts to message parts, and message parts back for a replay. Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence

from acp import helpers
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from holdfast.model.errors import Invalid
from holdfast.model.image_format import IMAGE_TYPES
from holdfast.model.message import Content, File, Image, Text

Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def to_parts(blocks: Sequence[Block]) -> tuple[Content, ...]:
    """The parts of a message. Raises Invalid for content that cannot be sent to a model."""
    parts = tuple(_to_part(block) for block in blocks)
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise Invalid("the prompt is empty")
    return parts


def _to_part(block: Block) -> Content:
    match block:
        case TextContentBlock():
            return Text(block.text)
        case ImageContentBlock():
            if block.mime_type not in IMAGE_TYPES:
                raise Invalid(
                    f"images of the type {block.mime_type[:100]!r} are not supported; use one of {', '.join(IMAGE_TYPES)}"
                )
            return Image(_data_url(block.data, block.mime_type), block.mime_type)
        case ResourceContentBlock():
            return Text(f"[{block.title or block.name}]({block.uri})")
        case EmbeddedResourceContentBlock():
            return _embedded(block)
        case AudioContentBlock():
            raise Invalid("audio is not supported")


def _embedded(block: EmbeddedResourceContentBlock) -> Content:
    resource = block.resource
    if isinstance(resource, BlobResourceContents):
        media_type = resource.mime_type or "application/octet-stream"
        url = _data_url(resource.blob, media_type)
        return Image(url, media_type) if media_type in IMAGE_TYPES else File(url, resource.uri, media_type)
    return Text(f"\n<resource uri={resource.uri!r}>\n{resource.text}\n</resource>\n")


def _data_url(data: str, media_type: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as e:
        raise Invalid(f"the content of type {media_type[:100]} is not valid base64") from e
    return f"data:{media_type};base64,{data}"


def to_blocks(parts: Iterable[Content]) -> list[Block]:
    """The parts as content for the editor."""
    return [block for part in parts if (block := _to_block(part)) is not None]


def _to_block(part: Content) -> Block | None:
    match part:
        case Text():
            return helpers.text_block(part.text) if part.text else None
        case Image() if found := DATA_URL.fullmatch(part.url):
            return helpers.image_block(found[2], found[1])
        case Image():
            return helpers.text_block(f"[image: {part.saved_as or part.url}]")
        case File() if found := DATA_URL.fullmatch(part.url):
            uri = part.name if ":" in part.name else f"attachment:{part.name or 'file'}"
            return helpers.resource_block(helpers.embedded_blob_resource(uri, found[2], mime_type=found[1]))
        case File():
            return helpers.text_block(f"[file: {part.name or part.url}]")
