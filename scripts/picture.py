"""Makes docs/images/chat.svg: plays the scene below for real, in a home of its own, and draws what the terminal showed.

Nothing in the picture is made up. If a command of the scene fails in a way the scene does not expect, no picture is written.
"""

import os
import pty
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "chat.svg"
WIDTH = 96
KILLED = 137
"""What a shell reports for a command that died of SIGKILL."""

SCENE = (
    ('holdfast run --key garden "My spare key is under the blue pot. Answer in one short sentence."', 0),
    ('timeout -s KILL 2 holdfast run --key garden "Now write a long story about a garden."', KILLED),
    ("holdfast sessions list", 0),
    ('holdfast run --key garden "Where is my spare key?"', 0),
    ("holdfast sessions verify", 0),
)
"""What is typed, and the exit code it must have."""


def play(command: str, environment: dict[str, str]) -> tuple[str, int]:
    """What the command wrote to its terminal, colours included, and how it ended."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    ) as child:
        os.close(theirs)
        written = b"".join(iter(lambda: _read(ours), b""))
        code = child.wait()
    os.close(ours)
    return written.decode("utf-8", "replace").replace("\r\n", "\n"), code if code >= 0 else 128 - code


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
        "HOLDFAST_HOME": f"{home}/.holdfast",
        "PATH": f"{commands}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "COLUMNS": str(WIDTH),
        "LANG": "C.UTF-8",
    }
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    try:
        for command, expected in SCENE:
            output, code = play(command, environment)
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(output.rstrip("\n")))
            if code != expected:
                sys.exit(f"{shlex.quote(command)} ended with {code}, not {expected}; no picture was written")
    finally:
        shutil.rmtree(home)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(PICTURE), title="holdfast")


if __name__ == "__main__":
    main()
