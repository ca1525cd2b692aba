"""`!` commands: run in the user's shell on their terminal. `!` shares the output with the model, `!!` does not."""

import re
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.cli.chat.pty_relay import run_on_terminal
from holdfast.model.attachment import header
from holdfast.model.errors import Invalid
from holdfast.model.message import ATTACHED, Text

LOCAL = re.compile(r"(!!?)(?![!\[])(.*)")
"""A single line that begins with one or two `!`. Markdown images and pasted text can begin with it, too."""
FALLBACK = "/bin/sh"
OUTPUT = "output of"


class LocalCommand(msgspec.Struct, frozen=True):
    line: str
    is_shared: bool
    """Whether the model sees the output with the next message."""


class CommandOutput(msgspec.Struct, frozen=True):
    status: int
    text: str
    is_full_screen: bool = False
    """Whether it was an editor or a pager, whose output is no text."""

    @property
    def notice(self) -> str:
        """A note about the exit status; empty for success."""
        return "" if self.status == 0 else f"[{describe_status(self.status)}]"


def parse_command(line: str) -> LocalCommand | None:
    """The command after `!`; None if the line is not one. Raises Invalid if the command is empty."""
    found = LOCAL.fullmatch(line)
    if found is None:
        return None
    command = found[2].strip()
    if not command:
        raise Invalid("the command is missing: type one after !, as in !ls; with !! the model does not see its output")
    return LocalCommand(command, found[1] == "!")


async def run(command: str, workdir: Path, environment: Mapping[str, str]) -> CommandOutput:
    """Run a command on the terminal, which the caller has freed. Its end is not awaited by anything else."""
    shell = environment.get("SHELL") or FALLBACK
    status, captured = await run_on_terminal((shell, "-c", command), workdir, environment)
    return CommandOutput(status, captured.text(), captured.is_full_screen)


def attachment(command: str, output: CommandOutput) -> Text:
    """The output as a part of the next message."""
    facts = describe_status(output.status)
    return Text(f"{header(OUTPUT, f'`{command}`', facts)}\n{output.text or '(no output)'}")


def is_output(part: Text) -> bool:
    """Whether the part is the output of a command."""
    return part.text.startswith(f"{ATTACHED}{OUTPUT} ")


def describe_status(status: int) -> str:
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
