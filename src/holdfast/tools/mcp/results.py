"""The result of an MCP call, as content for the model."""

import json
from typing import TYPE_CHECKING

from holdfast.model.message import Content, File, Image, Text
from holdfast.tools.output_capture import OutputCapture

if TYPE_CHECKING:
    import mcp_types

MAX_MEDIA_CHARS = 7_000_000
"""Of an image or a file in a result, in base64: about 5 MB."""


def to_parts(result: "mcp_types.CallToolResult", capture: OutputCapture) -> tuple[Content, ...]:
    """The result for the model: all text in one part, truncated if it is long, then images and files."""
    texts, media = [], []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
            case "image" | "audio":
                media.append(_media(block.data, block.mime_type))
            case "resource_link":
                texts.append(f"{block.name}: {block.uri}")
            case "resource":
                found = block.resource
                if hasattr(found, "text"):
                    texts.append(found.text)
                else:
                    media.append(_media(found.blob, found.mime_type or "application/octet-stream", str(found.uri)))
    if not texts and not media and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    capture.feed("\n".join(texts).encode("utf-8", "backslashreplace"))
    shown = capture.text() or ("" if media else "(no output)")
    return (*((Text(shown),) if shown else ()), *media)


def _media(data: str, media_type: str, name: str = "") -> Content:
    if len(data) > MAX_MEDIA_CHARS:
        return Text(f"[{media_type} of {len(data):,} characters omitted: too long]")
    url = f"data:{media_type};base64,{data}"
    return Image(url, media_type) if media_type.startswith("image/") else File(url, name, media_type)
