"""Keeps text that was being typed when a question appeared. It is never used as the answer, and returns afterwards."""

from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from holdfast.cli.chat.prompts import is_message

PAUSE_SECONDS = 0.6
"""How long the user must pause before the line is held back. Until then keys go to that line."""


class HeldDraft:
    """The input line while questions appear. Only a line started after the question was shown is an answer."""

    def __init__(self, buffer: Buffer, monotonic: Callable[[], float]) -> None:
        self._buffer = buffer
        self._monotonic = monotonic
        self._question = ""
        self._is_answering = False
        self._draft = ""
        self._changed_at = float("-inf")
        buffer.on_text_changed += lambda _: self._note_change()

    def _note_change(self) -> None:
        self._changed_at = self._monotonic()

    def show(self, question_id: str) -> float | None:
        """Note the question on the screen (an empty id for none). Returns the seconds until the next call, if one is needed."""
        if not question_id:
            self._restore()
            return None
        if question_id != self._question:
            self._question, self._is_answering = question_id, self._is_answering and not self._buffer.text
        if self._is_answering:
            return None
        pause = self._monotonic() - self._changed_at
        if self._buffer.text and pause < PAUSE_SECONDS:
            return PAUSE_SECONDS - pause
        self.keep(self._buffer.text)
        self._buffer.reset()
        self._is_answering = True
        return None

    @property
    def answered_question(self) -> str:
        """The question that the current line would answer; empty if the line was started before the question."""
        return self._question if self._is_answering else ""

    def keep(self, text: str) -> None:
        """Hold a text back until the questions are answered."""
        if text.strip():
            self._draft = f"{self._draft}\n{text}" if self._draft else text

    def _restore(self) -> None:
        was_answering, self._is_answering = self._is_answering, False
        question, self._question = self._question, ""
        if was_answering:
            # Other text in the line was meant for a question that is gone, unless it is a message.
            typed = self._buffer.text if is_message(self._buffer.text, question) else ""
            kept = "\n".join(filter(None, (self._draft, typed)))
            if kept != self._buffer.text:
                self._buffer.document = Document(kept, len(kept))
            self._draft = ""
