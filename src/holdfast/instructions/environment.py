"""What the model is told about where it works: the date, the operating system, the working directory, the git branch.

The date is that of the day, so that the text changes at most once a day and providers' prompt caches keep hitting.
"""

import platform
from datetime import datetime
from pathlib import Path

from holdfast.instructions.git_head import read_git_head
from holdfast.model.instructions import LoadedPart
from holdfast.model.sanitize import one_line


def describe_environment(now: datetime, workdir: Path | None, terminal: str) -> LoadedPart:
    """The environment as text. Without a working directory no file of the host is read."""
    lines = [f"- Date: {now:%A, %d %B %Y} ({now.tzname() or 'local time'})"]
    lines += [f"- Operating system: {platform.system()} {platform.release()} ({platform.machine()})"]
    if workdir is not None:
        lines += [f"- Working directory: {one_line(str(workdir))}"]
        branch = find_branch(workdir)
        lines += [f"- Git branch: {one_line(branch)}"] if branch else []
        lines += [f"- Commands run in: {terminal}"] if terminal != "local" else []
    return LoadedPart(part="environment", text="\n".join(["# Environment", *lines]))


def find_branch(workdir: Path) -> str:
    """The git branch of the directory, or the commit if none is checked out; empty outside a repository."""
    head = read_git_head(workdir)
    return head.branch or (f"none, at commit {head.commit[:12]}" if head.commit else "")
