"""The keys of the chat: Enter says it, Alt-Enter or Ctrl-J begins a line, Ctrl-C interrupts, Ctrl-D leaves."""

from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from holdfast.cli.chat.pasting import Pasteboard

Submit = Callable[[str], None]


def bindings(
    buffer: Buffer, board: Pasteboard, *, submit: Submit, interrupt: Callable[[], bool], leave: Callable[[], None]
) -> KeyBindings:
    """`interrupt` says whether there was something to interrupt; otherwise Ctrl-C clears what was typed."""
    keys = KeyBindings()
    is_empty = Condition(lambda: not buffer.text)

    @keys.add(Keys.Enter)
    def _(event: KeyPressEvent) -> None:
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None
            return
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
            buffer.reset()
            submit(text)

    @keys.add(Keys.Escape, Keys.Enter)
    @keys.add(Keys.ControlJ)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        buffer.insert_text(board.take(event.data))

    @keys.add(Keys.ControlC)
    def _(event: KeyPressEvent) -> None:
        if not interrupt():
            buffer.reset()

    @keys.add(Keys.ControlD, filter=is_empty)
    def _(event: KeyPressEvent) -> None:
        leave()

    @keys.add(Keys.ControlL)
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.clear()

    @keys.add(Keys.ControlZ)
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    _bind_tab(keys, buffer)

    return keys


def _bind_tab(keys: KeyBindings, buffer: Buffer) -> None:
    """Tab takes the next completion, or the first one as soon as it is there."""
    wanted: list[bool] = []

    def take_first(_: Buffer) -> None:
        state = buffer.complete_state
        if wanted and state is not None and state.completions:
            wanted.clear()
            buffer.complete_next()

    buffer.on_completions_changed += take_first
    buffer.on_text_insert += lambda _: wanted.clear()

    @keys.add(Keys.Tab)
    def _(event: KeyPressEvent) -> None:
        if buffer.complete_state is not None and buffer.complete_state.completions:
            buffer.complete_next()
        else:
            wanted.append(True)
            buffer.start_completion()

    @keys.add(Keys.BackTab)
    def _(event: KeyPressEvent) -> None:
        buffer.complete_previous()
