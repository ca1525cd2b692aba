"""The text that files had before calls of `write_file` replaced them, as it was recorded for rewinds.

It contains what was unsaved in the editor, because that is saved before a file is changed.
"""

import msgspec

from holdfast.model.file_change import NO_FILE, RecordedChange
from holdfast.store.database import Database
from holdfast.store.repos import file_changes

MAX_OLD_CHARS = 100_000
"""Longer texts are not shown. Arbitrary: the editor gets the whole text again with each load."""


class OldText(msgspec.Struct, frozen=True):
    """The text of a file before a call; None if there was no file."""

    text: str | None


class OldTexts:
    """The old texts of the files that one session has replaced."""

    def __init__(self, database: Database, session_id: str) -> None:
        self._database = database
        self._session_id = session_id
        self._changes: dict[int, RecordedChange] = {}
        """The changes that were read, by the number of the event that started their call."""

    async def find(self, started: int) -> OldText | None:
        """The text before the call that began with the event of this number; None if it is not stored, is not text, or is too long."""
        if started not in self._changes:
            found = await self._database.read(file_changes.list_after, self._session_id, started - 1)
            self._changes |= {change.seq: change for change in found}
        change = self._changes.get(started)
        if change is None or change.problem:
            return None
        if change.before_hash == NO_FILE:
            return OldText(None)
        data = await self._database.read(file_changes.get_image, self._session_id, change.before_hash)
        try:
            text = None if data is None else data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return None if text is None or len(text) > MAX_OLD_CHARS else OldText(text)
