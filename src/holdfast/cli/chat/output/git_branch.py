"""The git branch of a directory, for the status line."""

from collections.abc import Callable
from pathlib import Path

from holdfast.instructions.git_head import read_git_head

FRESH_SECONDS = 1.0
"""How long an answer is reused: the status line is drawn many times a second while a reply streams."""


class GitBranch:
    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        self._directory = directory
        self._now = now
        self._read_at = float("-inf")
        self._name = ""

    def name(self) -> str:
        """The branch, or the short hash of a detached HEAD; empty outside a repository."""
        if self._now() - self._read_at >= FRESH_SECONDS:
            head = read_git_head(self._directory)
            self._name = head.branch or head.commit[:7]
            self._read_at = self._now()
        return self._name
