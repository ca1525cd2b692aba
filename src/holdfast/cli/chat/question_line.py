"""The question above the input line. It is shown only when the next line would be its answer."""

import asyncio
from collections.abc import Callable

from holdfast.cli.chat.input.held_draft import HeldDraft
from holdfast.cli.chat.prompts import TerminalPrompt


class QuestionLine:
    """`refresh` is called again when the user has paused, if that is needed to show the question."""

    def __init__(self, draft: HeldDraft, refresh: Callable[[], None]) -> None:
        self._draft = draft
        self._refresh = refresh
        self.shown: TerminalPrompt | None = None

    def update(self, asked: TerminalPrompt | None) -> str | None:
        """Show this question, and hold or restore the input line. Returns the lines to print for a new question."""
        before, self.shown = self.shown, asked
        again = self._draft.show("" if asked is None else asked.id)
        if again is not None:
            asyncio.get_running_loop().call_later(again, self._refresh)
        if asked is None or (before is not None and before.id == asked.id):
            return None
        return f"\n{asked.details}" if asked.details else ""
