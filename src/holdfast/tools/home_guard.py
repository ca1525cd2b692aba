"""Keeps tools out of Holdfast's home: its keys, its settings, its store and the files of other sessions.

A call that names such a path is refused, whoever approves it. Within the home a session may read its own
`files` directory, and read and write its own working directory if that is in `work`.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.tool import ToolContext
from holdfast.tools.paths import real_path, resolve
from holdfast.tools.safe_open import descriptor_path, open_for_reading
from holdfast.tools.sensitive_paths import WORK, check_target, why_guarded, why_secret

MEMORY = re.compile(r"/proc/[^/]+/(task/[^/]+/)?(environ|mem|auxv|pagemap|stack)")
"""Files with the environment or the memory of a process. The file tools run in Holdfast's process, so they could read its secrets."""


def readable_folders(context: ToolContext, home: Path | None) -> tuple[Path, ...]:
    """The directories within the home that the session may read."""
    return (context.files, *writable_folders(context, home))


def writable_folders(context: ToolContext, home: Path | None) -> tuple[Path, ...]:
    """The directories within the home that the session may change."""
    work = None if home is None else real_path(home) / WORK
    is_own = work is not None and real_path(context.workdir) != work and real_path(context.workdir).is_relative_to(work)
    return (context.workdir,) if is_own else ()


def is_protected(path: Path | str, home: Path | None, allowed: Iterable[Path]) -> bool:
    """Whether a path, with links resolved, is in the home and in none of the allowed directories."""
    if home is None:
        return False
    real, inside = real_path(path), real_path(home)
    if not real.is_relative_to(inside):
        return False
    return not any(real.is_relative_to(real_path(directory)) for directory in allowed)


def find_read_risks(named: str, context: ToolContext, home: Path | None) -> tuple[Finding, ...]:
    """Why reading a path needs approval; empty if it does not, or if the path is refused anyway."""
    path = _lexical(named, context)
    if path is None or is_protected(path, home, readable_folders(context, home)):
        return ()
    return why_secret(named, home) or why_secret(str(path), home)


def find_write_risks(named: str, context: ToolContext, home: Path | None) -> tuple[Finding, ...]:
    """Why changing a path needs approval; empty if it does not, or if the path is refused anyway."""
    path = _lexical(named, context)
    if path is None or is_protected(path, home, writable_folders(context, home)):
        return ()
    return why_guarded(named, home) or why_guarded(str(path), home)


def check_read(named: str, context: ToolContext, home: Path | None) -> Path:
    """The path to read. Raises Invalid for a path in the home, and for a link to a file that needs approval."""
    path = resolve(named, context.workdir)
    if MEMORY.fullmatch(str(real_path(path))):
        raise Invalid(f"{named} contains the environment or the memory of a process, which tools cannot read")
    if is_protected(path, home, readable_folders(context, home)):
        raise Invalid(refusal_message(named, context))
    if not find_read_risks(named, context, home):
        check_target(real_path(path), why_secret, home)
    return path


def open_checked(named: str, context: ToolContext, home: Path | None) -> BinaryIO:
    """Open a file to read. Raises Invalid as `check_read` does, also if a link was replaced after that check."""
    file = open_for_reading(check_read(named, context, home))
    try:
        real = descriptor_path(file.fileno())
        if is_protected(real, home, readable_folders(context, home)) or MEMORY.fullmatch(str(real)):
            raise Invalid(refusal_message(named, context))
        if not find_read_risks(named, context, home):
            check_target(real, why_secret, home)
    except BaseException:
        file.close()
        raise
    return file


def check_write(named: str, real: Path, context: ToolContext, home: Path | None) -> None:
    """As `check_read`, for a path to change that resolves to `real`."""
    if is_protected(real, home, writable_folders(context, home)) or MEMORY.fullmatch(str(real)):
        raise Invalid(refusal_message(named, context))
    if not find_write_risks(named, context, home):
        check_target(real, why_guarded, home)


def _lexical(named: str, context: ToolContext) -> Path | None:
    """The absolute path, links not resolved; None for an invalid path."""
    try:
        return Path(os.path.normpath(resolve(named, context.workdir)))
    except Invalid:
        return None


def refusal_message(path: str, context: ToolContext) -> str:
    return f"{path} is in Holdfast's own directory, which tools cannot use; work in {context.workdir}"
