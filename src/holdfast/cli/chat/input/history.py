"""Input history of all chats: one JSON string per line, in a file that only its owner can read."""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

log = logging.getLogger(__name__)
FILE = "chat-history"
MODE = 0o600
REMEMBERED = 1_000
LONGEST = 10_000
"""Longer inputs are not stored here; the session has them."""


class InputHistory(History):
    """Appends each input with one write, so that several chats can share the file. A failed write loses history, not the chat."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as e:
            log.warning("cannot read the input history: %s", e)
            return []
        return [text for line in reversed(lines[-REMEMBERED:]) if (text := _parsed(line))]

    def store_string(self, string: str) -> None:
        if len(string) > LONGEST:
            return
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, MODE)
            try:
                os.write(descriptor, json.dumps(string).encode("ascii") + b"\n")
            finally:
                os.close(descriptor)
        except OSError as e:
            log.warning("cannot append to the input history %s: %s", self._path, e)


def _parsed(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""
