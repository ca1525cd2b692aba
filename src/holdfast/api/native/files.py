"""The files of a session: images that its tools made, attachments, and long output."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import BinaryIO
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.model.image_format import image_type
from holdfast.store import session_files

OTHER = "application/octet-stream"
CHUNK = 256 * 1024
HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, no-cache",
}
"""A browser that opens the file must not run anything in it."""


async def get_file(call: EndpointCall) -> Response:
    """Return a file of the session. The type of an image is that of its content; any other file is a download."""
    session = await load_session(call)
    home, name = call.context.settings.home, call.path_param("name")
    file = await asyncio.to_thread(session_files.open_file, home, session.id, name)
    try:
        start = await asyncio.to_thread(file.read, CHUNK)
        size = os.fstat(file.fileno()).st_size
    except BaseException:
        file.close()
        raise
    media_type = image_type(start)
    how = "inline" if media_type else "attachment"
    headers = {
        **HEADERS,
        "content-length": str(size),
        "content-disposition": f"{how}; filename*=utf-8''{quote(name)}",
    }
    return StreamingResponse(_chunks(file, start, size), headers=headers, media_type=media_type or OTHER)


async def _chunks(file: BinaryIO, chunk: bytes, left: int) -> AsyncIterator[bytes]:
    """The content up to the size it had at the start; a process may still append to the file."""
    with file:
        while chunk and left:
            yield chunk[:left]
            left -= len(chunk[:left])
            chunk = await asyncio.to_thread(file.read, CHUNK)
