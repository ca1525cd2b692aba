"""Programs that the user starts from the chat on this terminal: `!` commands, the editor, and the clipboard."""

from collections.abc import Callable, Mapping
from pathlib import Path

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from holdfast.cli.chat import shell_command
from holdfast.cli.chat.attachments.composer import MessageComposer
from holdfast.cli.chat.input import clipboard, external_editor
from holdfast.cli.chat.input.paste import PasteBuffer
from holdfast.cli.chat.output.screen import Screen
from holdfast.cli.chat.shell_command import LocalCommand
from holdfast.model.errors import Invalid
from holdfast.model.text import counted


class UserPrograms:
    """A failure is shown and changes nothing."""

    def __init__(
        self,
        screen: Screen,
        buffer: Buffer,
        pastes: PasteBuffer,
        composer: MessageComposer,
        show: Callable[[str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._screen = screen
        self._buffer = buffer
        self._pastes = pastes
        self._composer = composer
        self._show = show
        self._environment = environment
        self.has_terminal = False
        """Whether one of them has the terminal now."""

    async def run_command(self, command: LocalCommand, workdir: Path) -> None:
        """Run a `!` command. The model sees the output of a shared one with the next message."""
        self.has_terminal = True
        try:
            async with self._screen.lent():
                output = await shell_command.run(command.line, workdir, self._environment)
        finally:
            self.has_terminal = False
        if output.notice:
            self._show(output.notice)
        if command.is_shared and not output.is_full_screen:
            self._composer.add_output(shell_command.attachment(command.line, output))
            lines = output.text.count("\n") + bool(output.text and not output.text.endswith("\n"))
            self._show(f"[{counted(lines, 'line')} of output will be sent with your next message]")

    async def edit_message(self) -> None:
        """Edit the input line in the user's editor."""
        self.has_terminal = True
        try:
            async with self._screen.lent():
                text = await external_editor.edit(self._pastes.expand(self._buffer.text), self._environment)
        except Invalid as e:
            self._show(f"! {e}")
            return
        finally:
            self.has_terminal = False
        shown = self._pastes.take(text)
        self._buffer.document = Document(shown, len(shown))

    async def paste_image(self) -> None:
        """Insert the image in the clipboard as a placeholder."""
        try:
            content = await clipboard.read_image(self._environment)
        except Invalid as e:
            self._show(f"! {e}")
            return
        self._buffer.insert_text(f"{self._pastes.take_image(content)} ")
