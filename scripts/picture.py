"""Makes docs/images/chat.svg: plays the scene below for real, in a home of its own, and draws what the terminal showed.

Nothing in the picture is made up. If a command of the scene does not end as the scene says, no picture is written.
"""

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "chat.svg"
WIDTH = 96
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Fonts that would be fetched from elsewhere; the reader's own monospaced one does as well."""


class Line(NamedTuple):
    """What is typed. With a number, the program gets a SIGKILL as soon as it has written that many characters."""

    command: str
    kill_after: int | None = None


SCENE = (
    Line('holdfast run --title cities "What is the capital of France?"'),
    Line('holdfast run --session cities "Tell me a story about that city."', kill_after=260),
    Line('holdfast run --session cities "What is the capital of Italy?"'),
    Line("holdfast sessions show cities"),
    Line("holdfast sessions verify cities"),
)


def play(line: Line, environment: dict[str, str]) -> tuple[str, int]:
    """What the program wrote to its terminal, colours included, and how it ended."""
    ours, theirs = pty.openpty()
    command = ["bash", "-c", f"exec {line.command}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment) as child:
        os.close(theirs)
        written = b""
        while piece := _read(ours):
            written += piece
            if line.kill_after is not None and len(shown(written)) >= line.kill_after:
                child.kill()
    os.close(ours)
    return shown(written), child.returncode


def shown(written: bytes) -> str:
    """What is left on the screen: a line that was begun again has only its last words."""
    lines = written.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2].removeprefix("\x1b[K") for line in lines).strip("\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other end of a terminal is closed
        return b""


def main() -> None:
    home = tempfile.mkdtemp(prefix="holdfast-picture-")
    commands = str(Path(sys.executable).parent)
    environment = {
        "HOME": home,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "COLUMNS": str(WIDTH),
        "LANG": "C.UTF-8",
    }
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    try:
        for line in SCENE:
            _draw(console, line, environment)
    finally:
        shutil.rmtree(home)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(FONTS.sub("", console.export_svg(title="holdfast")), "utf-8")


def _draw(console: Console, line: Line, environment: dict[str, str]) -> None:
    output, code = play(line, environment)
    console.print(Text(f"$ {line.command}", style="bold green"))
    console.print(Text.from_ansi(output))
    killed = line.kill_after is not None
    if code != (-signal.SIGKILL if killed else 0):
        sys.exit(f"{shlex.quote(line.command)} ended with {code}; no picture was written")
    if killed:
        console.print(Text("Killed", style="bold red"))
    console.print()


if __name__ == "__main__":
    main()
