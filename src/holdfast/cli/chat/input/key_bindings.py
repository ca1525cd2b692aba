"""Key bindings of the chat: Enter sends, Alt-Enter or Ctrl-J inserts a line break, Esc and Ctrl-C interrupt, Ctrl-D quits.

With vim keys, Esc first leaves the insert mode.
"""

from typing import Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completion
from prompt_toolkit.filters import Condition, is_searching, vi_insert_mode, vi_mode, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from holdfast.cli.chat.input.paste import PasteBuffer
from holdfast.cli.chat.input.pasted_path import image_mention
from holdfast.slash.registry import BY_NAME

KEY_HELP = """\
Enter           send the message; during a turn it is queued
Alt-Enter       start a new line (also Ctrl-J)
Esc, Ctrl-C     interrupt the turn; Ctrl-C also clears the line
Esc Esc         go back to before an earlier message, like /rewind
Ctrl-D          quit, on an empty line
Shift-Tab       change the permission mode
Tab             complete a command, a title or a file
@PATH           attach a file, an image or a directory
!COMMAND        run a command; its output goes to the model with the next message
!!COMMAND       run a command that the model does not see
Up, Down        earlier input; with queued messages, Up takes back the newest one
Ctrl-R          search earlier input
Ctrl-X Ctrl-E   edit the message in your editor
Ctrl-V          paste an image from the clipboard
Ctrl-L, Ctrl-Z  clear the screen, suspend the chat"""


class KeyActions(Protocol):
    """What the keys do."""

    def enter(self, text: str) -> None:
        """Handle an entered line."""

    def interrupt(self) -> bool:
        """Interrupt what runs; False if nothing does."""

    def go_back(self) -> None:
        """Let the user choose a message to go back before."""

    def has_queued(self) -> bool:
        """Whether messages are queued."""

    def edit_queued(self) -> None:
        """Take the latest of them back into the input line."""

    def edit_in_editor(self) -> None:
        """Edit the input line in the user's editor."""

    def paste_image(self) -> None:
        """Insert the image in the clipboard."""

    def cycle_mode(self) -> None:
        """Change to the next permission mode."""

    def explain_quit(self) -> None:
        """Show how to quit."""

    def quit(self) -> None:
        """Quit."""


def bindings(buffer: Buffer, pastes: PasteBuffer, actions: KeyActions) -> KeyBindings:
    """The bindings for the input line. During a history search the search bindings apply."""
    keys = KeyBindings()
    _bind_line(keys, buffer, pastes, actions)
    _bind_turn(keys, buffer, actions)
    _bind_tab(keys, buffer, actions)
    _bind_programs(keys, actions)

    @keys.add(Keys.ControlL)
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    @keys.add(Keys.ControlZ)
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return keys


def _bind_line(keys: KeyBindings, buffer: Buffer, pastes: PasteBuffer, actions: KeyActions) -> None:
    """Typing, pasting and sending."""

    @keys.add(Keys.Enter, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None
            if not _is_whole_command(buffer.text):
                _begin_next(buffer, state.current_completion)
                return
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
            buffer.reset()
            actions.enter(text)

    @keys.add(Keys.Escape, Keys.Enter, filter=~is_searching & (~vi_mode | vi_insert_mode))
    @keys.add(Keys.ControlJ, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text(image_mention(event.data) or pastes.take(event.data))


def _bind_programs(keys: KeyBindings, actions: KeyActions) -> None:
    """The editor and the clipboard. With vim keys, `v` in the navigation mode opens the editor as well."""

    @keys.add(Keys.ControlX, Keys.ControlE, filter=~is_searching)
    @keys.add("v", filter=vi_navigation_mode & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        actions.edit_in_editor()

    @keys.add(Keys.ControlV, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        actions.paste_image()


def _is_whole_command(text: str) -> bool:
    """Whether a completed line is a command that needs no more arguments."""
    name, _, rest = text.strip().removeprefix("/").partition(" ")
    command = BY_NAME.get(name) if text.startswith("/") else None
    return command is not None and (bool(rest) or not command.usage or command.usage.startswith("["))


def _begin_next(buffer: Buffer, completion: Completion) -> None:
    """After a completion: offer what a directory contains, or begin the next word after a file or a command."""
    command = BY_NAME.get(completion.text.removeprefix("/")) if completion.text.startswith("/") else None
    if completion.text.endswith("/"):
        buffer.start_completion()
    elif completion.text.startswith("@") or (command is not None and command.usage):
        buffer.insert_text(" ")


def _bind_turn(keys: KeyBindings, buffer: Buffer, actions: KeyActions) -> None:
    """Interrupting, editing queued messages and quitting."""
    is_empty = Condition(lambda: not buffer.text)
    has_queued = Condition(actions.has_queued)

    @keys.add(Keys.Escape, filter=~is_searching & (~vi_mode | vi_navigation_mode))
    def _(event: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif not actions.interrupt() and event.is_repeat and not buffer.text:
            actions.go_back()

    @keys.add(Keys.ControlC, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if actions.interrupt():
            return
        if buffer.text:
            buffer.reset()
        else:
            actions.explain_quit()

    @keys.add(Keys.Up, filter=~is_searching & is_empty & has_queued)
    def _(event: KeyPressEvent) -> None:
        actions.edit_queued()

    @keys.add(Keys.ControlD, filter=~is_searching & is_empty)
    def _(event: KeyPressEvent) -> None:
        actions.quit()


def _bind_tab(keys: KeyBindings, buffer: Buffer, actions: KeyActions) -> None:
    """Tab takes the only completion, or selects the next one, as soon as there are any. Shift-Tab changes the permission mode."""
    wanted: list[bool] = []

    def take(completions: list[Completion]) -> None:
        if len(completions) == 1:
            buffer.apply_completion(completions[0])
            _begin_next(buffer, completions[0])
        else:
            buffer.complete_next()

    def take_first(_: Buffer) -> None:
        state = buffer.complete_state
        if wanted and state is not None and state.completions:
            wanted.clear()
            take(state.completions)

    buffer.on_completions_changed += take_first
    buffer.on_text_insert += lambda _: wanted.clear()

    @keys.add(Keys.Tab, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if buffer.complete_state is not None and buffer.complete_state.completions:
            take(buffer.complete_state.completions)
        else:
            wanted.append(True)
            buffer.start_completion()

    @keys.add(Keys.BackTab, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.complete_previous()
        else:
            actions.cycle_mode()
