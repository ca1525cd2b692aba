"""Composes the messages of one chat: typed text, pasted text and images, mentioned files, output of `!` commands."""

import asyncio
from pathlib import Path

import msgspec

from holdfast.cli.chat.attachments.compose import ComposedMessage, compose
from holdfast.cli.chat.attachments.file_content import image_parts
from holdfast.cli.chat.input.paste import PasteBuffer
from holdfast.cli.chat.shell_command import is_output
from holdfast.model.image_format import image_type
from holdfast.model.message import Content, Text


class MessageComposer:
    def __init__(self, workdir: Path, home: Path, pastes: PasteBuffer) -> None:
        self.workdir = workdir
        self._home = home
        self._pastes = pastes
        self._outputs: list[Text] = []

    def add_output(self, output: Text) -> None:
        """Send this with the next message."""
        self._outputs.append(output)

    async def compose(self, typed: str) -> ComposedMessage:
        """The parts of a message. Raises Invalid if something cannot be attached."""
        text = self._pastes.expand(typed)
        message = await asyncio.to_thread(compose, typed, text, self.workdir, self._home)
        images = [
            part
            for name, content in self._pastes.images(typed)
            for part in image_parts(content, image_type(content) or "", name)
        ]
        return msgspec.structs.replace(message, parts=(*message.parts, *images, *self._outputs))

    def restore(self, parts: tuple[Content, ...]) -> None:
        """Send the outputs in a message that was taken back with the next message."""
        self._outputs[:0] = [part for part in parts[1:] if isinstance(part, Text) and is_output(part)]

    def sent(self) -> None:
        """Forget the outputs that the last message contained."""
        self._outputs.clear()
