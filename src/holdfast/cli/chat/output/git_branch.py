"""The git branch of a directory, read from `.git/HEAD` without starting git."""

import re
from collections.abc import Callable
from pathlib import Path

BRANCH = re.compile(r"ref: refs/heads/(\S+)")
COMMIT = re.compile(r"([0-9a-f]{7})[0-9a-f]{33,57}")
FRESH_SECONDS = 1.0
"""How long an answer is reused: the status line is drawn many times a second while a reply streams."""
MAX_BYTES = 4096


class GitBranch:
    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        self._directory = directory
        self._now = now
        self._read_at = float("-inf")
        self._name = ""

    def name(self) -> str:
        """The branch, or the short hash of a detached HEAD; empty outside a repository."""
        if self._now() - self._read_at >= FRESH_SECONDS:
            self._name = read_branch(self._directory)
            self._read_at = self._now()
        return self._name


def read_branch(directory: Path) -> str:
    """See `GitBranch.name`. A damaged repository counts as none."""
    for folder in (directory, *directory.parents):
        head = _head(folder / ".git")
        if head:
            found = BRANCH.fullmatch(head) or COMMIT.fullmatch(head)
            return found[1] if found is not None else ""
    return ""


def _head(git: Path) -> str:
    """The content of HEAD. In a worktree or submodule `.git` is a file that names the directory."""
    try:
        if git.is_file():
            named = git.read_bytes()[:MAX_BYTES].decode("utf-8", "surrogateescape").strip()
            git = git.parent / named.removeprefix("gitdir: ")
        with (git / "HEAD").open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "surrogateescape").strip()
    except (OSError, ValueError):  # no repository, not readable, or a name that cannot be a path
        return ""
