"""Edits the input line in the user's own editor."""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import Invalid

FALLBACK = "vi"


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """The words of `$VISUAL` or `$EDITOR`. Raises Invalid if they cannot be parsed."""
    name = environment.get("VISUAL") or environment.get("EDITOR") or FALLBACK
    try:
        words = shlex.split(name)
    except ValueError as e:
        raise Invalid(f"cannot parse the editor {name!r} ({e}); check VISUAL and EDITOR") from e
    if not words:
        raise Invalid("the name of the editor is empty; check VISUAL and EDITOR")
    return words


async def edit(text: str, environment: Mapping[str, str]) -> str:
    """The text as the user saved it. Raises Invalid if the editor cannot be started or fails. The caller frees the terminal."""
    command = editor_command(environment)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as directory:
        path = Path(directory) / "message.md"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        status = await _run(command, path)
        if status != 0:
            how = f"status {status}" if status > 0 else f"signal {-status}"
            raise Invalid(f"the editor {command[0]} ended with {how}; the message is unchanged")
        try:
            edited = path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as e:
            raise Invalid(f"the editor {command[0]} left no file: {e.strerror}; the message is unchanged") from e
    return edited.removesuffix("\n")


async def _run(command: list[str], path: Path) -> int:
    try:
        process = await asyncio.create_subprocess_exec(*command, os.fspath(path))
    except OSError as e:
        raise Invalid(f"cannot start the editor {command[0]}: {e.strerror}; check VISUAL and EDITOR") from e
    return await process.wait()
