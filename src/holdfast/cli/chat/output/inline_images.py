"""Shows the images that tools made in the chat. Without support by the terminal, the path in the result is enough."""

import asyncio
import base64
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.cli.chat.output.image_protocols import Protocol, encode_image
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.event import ToolEnded
from holdfast.model.message import Image
from holdfast.store import session_files


class InlineImages:
    """`columns` returns the current width of the terminal. Without a protocol nothing is shown."""

    def __init__(self, protocol: Protocol | None, home: Path, columns: Callable[[], int]) -> None:
        self._protocol = protocol
        self._home = home
        self._columns = columns

    async def render(self, entry: Entry, session_id: str) -> str:
        """The lines that show the images of an event; empty if it has none."""
        if self._protocol is None or not isinstance(entry.event, ToolEnded):
            return ""
        made = [part for part in entry.event.parts if isinstance(part, Image) and part.saved_as]
        return await asyncio.to_thread(self._encode, self._protocol, made, session_id) if made else ""

    def _encode(self, protocol: Protocol, images: Iterable[Image], session_id: str) -> str:
        contents = (self._load(image, session_id) for image in images)
        shown = (encode_image(content, protocol, self._columns() - 2) for content in contents)
        return "".join(f"  {sequence}\n" for sequence in shown if sequence)

    def _load(self, image: Image, session_id: str) -> bytes:
        """The content; empty if it no longer exists or is damaged."""
        head, _, data = image.url.partition(",")
        try:
            if head.startswith("data:"):
                return base64.b64decode(data)
            with session_files.open_file(self._home, session_id, image.saved_as) as file:
                return file.read()
        except (NotFound, ValueError):
            return b""
