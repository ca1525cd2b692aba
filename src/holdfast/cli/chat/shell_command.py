"""`!` commands: run in the user's shell on their terminal. The model does not see them."""

import asyncio
import re
import signal
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import Invalid

LOCAL = re.compile(r"!(?![!\[])(.*)")
"""A single line that begins with `!`. Markdown images and pasted text can begin with it, too."""
FALLBACK = "/bin/sh"


def parse_command(line: str) -> str | None:
    """The command after `!`; None if the line is not one. Raises Invalid if the command is empty."""
    found = LOCAL.fullmatch(line)
    if found is None:
        return None
    command = found[1].strip()
    if not command:
        raise Invalid("the command is missing: type one after !, as in !ls; it runs in your shell, unseen by the model")
    return command


async def run(command: str, workdir: Path, environment: Mapping[str, str]) -> int:
    """Run a command on the terminal and return its exit status, negative for a signal. The caller frees the terminal."""
    shell = environment.get("SHELL") or FALLBACK
    try:
        process = await asyncio.create_subprocess_exec(shell, "-c", command, cwd=workdir)
    except OSError as e:
        raise Invalid(f"cannot run {shell}: {e.strerror}; check the environment variable SHELL") from e
    return await process.wait()


def describe_status(status: int) -> str:
    """A note about the exit status; empty for success."""
    if status == 0:
        return ""
    if status < 0:
        return f"[ended by {signal.Signals(-status).name}]"
    return f"[exit status {status}]"
