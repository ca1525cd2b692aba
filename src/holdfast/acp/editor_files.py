"""File tools that see the editor's unsaved text, and show their changes in its buffers.

The tools of this machine still do the work, with all their checks: a file is read from the disk first, and a change is made
on the disk. Around that, a read returns the text of the editor's buffer, and before a change, or before a question about
it, the editor saves the buffer, so that unsaved work of the person is part of the file that is changed.
"""

import asyncio
import logging
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from acp.exceptions import RequestError
from pydantic import ValidationError

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.message import Text
from holdfast.model.tool import Effect, Preview, Previewing, Tool, ToolContext, ToolOutput, effect_of
from holdfast.tools.home_guard import check_write
from holdfast.tools.paths import real_path, resolve
from holdfast.tools.read_file import ReadFileArguments, format_page

logger = logging.getLogger(__name__)
SHARED = ("local", "bubblewrap")
"""Terminal backends whose files are those of this machine."""
TYPED_SINCE = "{path} was changed in the editor after the change was approved; nothing was written. Read it again"


class EditorBuffers:
    """The text files that are open in the editor, for one session."""

    def __init__(self, client: Any, session_name: str, *, can_read: bool, can_write: bool) -> None:
        self._client = client
        self._name = session_name
        self.can_read = can_read
        self.can_write = can_write

    async def read(self, path: Path) -> str | None:
        """The text that the editor has; None if it has none."""
        if not self.can_read:
            return None
        try:
            response = await self._client.read_text_file(session_id=self._name, path=str(path))
        except (RequestError, ConnectionError, ValidationError) as e:
            logger.info("the editor did not return %s: %s", path, e)
            return None
        return str(response.content)

    async def write(self, path: Path, text: str) -> None:
        """Put the text into the editor's buffer, and have it saved."""
        if not self.can_write:
            return
        try:
            await self._client.write_text_file(session_id=self._name, path=str(path), content=text)
        except (RequestError, ConnectionError, ValidationError) as e:
            logger.info("the editor did not accept %s: %s", path, e)


class BufferedReadTool:
    """`read_file` with the editor's text."""

    def __init__(self, inner: Tool, buffers: EditorBuffers) -> None:
        self.spec = inner.spec
        self.repeatable = inner.repeatable
        self._inner = inner
        self._buffers = buffers

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        return effect_of(self._inner, arguments, context)

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return self._inner.risk(arguments, context)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, ReadFileArguments)
        whole = {**arguments, "offset": 1, "limit": 1}
        first = await self._inner.run(whole, context)
        is_text = first.ok and all(isinstance(part, Text) for part in first.parts)
        path = resolve(parsed.path, context.workdir)
        text = await self._buffers.read(path) if is_text and context.terminal in SHARED else None
        if text is None:
            return await self._inner.run(arguments, context)
        try:
            return ToolOutput.say(format_page(BytesIO(text.encode("utf-8", "surrogatepass")), parsed, path))
        except Invalid as e:
            return ToolOutput.say(str(e), ok=False)


class BufferedEditTool:
    """`write_file` or `edit_file`, on the disk and in the editor."""

    def __init__(self, inner: Tool, buffers: EditorBuffers, home: Path) -> None:
        self.spec = inner.spec
        self.repeatable = inner.repeatable
        self._inner = inner
        self._buffers = buffers
        self._home = home

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        return effect_of(self._inner, arguments, context)

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return self._inner.risk(arguments, context)

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        assert isinstance(self._inner, Previewing), "every tool that changes files has a preview"
        if context.terminal in SHARED:
            path, unsaved = await self._find_unsaved(arguments, context)
            if unsaved is not None:
                await self._buffers.write(path, unsaved)
        return await self._inner.preview(arguments, context)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        if context.terminal not in SHARED:
            return await self._inner.run(arguments, context)
        path, unsaved = await self._find_unsaved(arguments, context)
        if unsaved is not None and context.approved:  # it was previewed with the file as it was then
            return ToolOutput.say(TYPED_SINCE.format(path=path), ok=False)
        if unsaved is not None:
            await self._buffers.write(path, unsaved)
        output = await self._inner.run(arguments, context)
        if output.ok and (text := await asyncio.to_thread(_read_text, path)) is not None:
            await self._buffers.write(path, text)
        return output

    async def _find_unsaved(self, arguments: dict[str, object], context: ToolContext) -> tuple[Path, str | None]:
        """The file that the tool would change, and the editor's text of it if that is not saved."""
        named = str(arguments["path"])
        path = await asyncio.to_thread(real_path, resolve(named, context.workdir))
        try:
            check_write(named, path, context, self._home)
        except Invalid:
            return path, None  # the tool refuses it with the same message
        on_disk = await asyncio.to_thread(_read_text, path)
        text = await self._buffers.read(path) if on_disk is not None else None
        return path, text if text != on_disk else None


def _read_text(path: Path) -> str | None:
    """The text of a file, with its line ends; None if it is missing or no text."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
