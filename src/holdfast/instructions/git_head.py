"""What is checked out in the git repository of a directory, read without starting git."""

import re
from pathlib import Path

import msgspec

from holdfast.instructions.rules import project_root
from holdfast.instructions.text_file import read_text

HEAD = re.compile(r"ref: refs/heads/(?P<branch>\S{1,250})\s*|(?P<commit>[0-9a-f]{40,64})\s*")
GITDIR = re.compile(r"gitdir: (?P<path>[^\n\0]{1,4000})\n?")
MAX_BYTES = 4096


class GitHead(msgspec.Struct, frozen=True):
    """The branch, or the commit if no branch is checked out. Both are empty outside a repository."""

    branch: str = ""
    commit: str = ""


def read_git_head(workdir: Path) -> GitHead:
    """The head of the repository that contains the directory. A damaged repository counts as none."""
    root = project_root(workdir)
    git = root / ".git"
    linked = GITDIR.fullmatch(read_text(git, None, max_bytes=MAX_BYTES).text)
    if linked is not None:  # a linked worktree, or a submodule
        git = root / linked["path"]
    head = HEAD.fullmatch(read_text(git / "HEAD", None, max_bytes=MAX_BYTES).text)
    return GitHead() if head is None else GitHead(head["branch"] or "", head["commit"] or "")
