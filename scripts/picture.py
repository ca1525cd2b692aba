"""Makes the pictures of the chat in docs/images: types the scenes below into a real shell and draws what the terminal shows.

The embedded model answers in the first scene and the scripted model in the second, as the status line shows. If a scene does
not go as expected, no picture is made.
"""

import fcntl
import itertools
import json
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH = 100
ROWS = 60
LIMIT_SECONDS = 120.0
QUIET_SECONDS = 1.0
KILL_AFTER_CHARACTERS = 850
"""The chat is killed when it shows this many characters: the model is then writing the second paragraph."""
PROMPT = r"\[\e[1;32m\]$\[\e[0m\] "
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Web fonts, which are removed; the picture uses the reader's own monospaced font."""
DOWN = "\x1b[B"
FAINT = re.compile(rb"\x1b\[(?:0;)?2m")
COLORS = {"brown": "yellow", "brightbrown": "bright_yellow", "brightblack": "bright_black"}


class Terminal:
    """A terminal with an interactive shell, whose home is a temporary directory."""

    def __init__(self, rows: int = ROWS) -> None:
        self._home = tempfile.mkdtemp(prefix="holdfast-picture-")
        self._screen = pyte.Screen(WIDTH, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, WIDTH, 0, 0))
        environment = {
            "HOME": self._home,
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": PROMPT,
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
        }
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self._home,
            env=environment,
        )
        os.close(theirs)

    def type(self, line: str) -> None:
        os.write(self._ours, f"{line}\r".encode())

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def see(self, words: str) -> None:
        """Wait until the terminal shows these words."""
        self._until(lambda: words in " ".join(" ".join(self._screen.display).split()), words)

    def see_characters(self, count: int) -> None:
        """Wait until the terminal shows at least `count` characters."""
        self._until(lambda: sum(len(line.strip()) for line in self._screen.display) >= count, f"{count} characters")

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not true():
            if time.monotonic() > end or not self._read(0.1):
                shown = "\n".join(self._screen.display)
                sys.exit(f"never saw {what!r}; no picture was made. The terminal shows:\n{shown}")

    def _read(self, seconds: float) -> bool:
        try:
            if select.select([self._ours], [], [], seconds)[0]:
                data = os.read(self._ours, 65536)
                self._stream.feed(FAINT.sub(b"\x1b[90m", data))  # pyte does not support faint text
        except OSError:  # Linux reports a closed terminal as an error
            return False
        return True

    def settle(self) -> None:
        """Wait until nothing more is drawn."""
        end = time.monotonic() + LIMIT_SECONDS
        while select.select([self._ours], [], [], QUIET_SECONDS)[0] and self._read(0):
            if time.monotonic() > end:
                sys.exit("the terminal keeps changing; no picture was made")

    def make_directory(self, name: str) -> None:
        Path(self._home, name).mkdir()

    def write(self, name: str, text: str) -> None:
        Path(self._home, name).write_text(text, "utf-8")

    def draw(self, name: str) -> None:
        console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
        last = max(n for n, line in enumerate(self._screen.display, 1) if line.strip())
        for row in range(last):
            chars = [self._screen.buffer[row][column] for column in range(WIDTH)]
            line = Text()
            for style, run in itertools.groupby(chars, _style):
                line.append("".join(char.data for char in run), style)
            line.rstrip()
            console.print(line)
        IMAGES.mkdir(parents=True, exist_ok=True)
        (IMAGES / name).write_text(FONTS.sub("", console.export_svg(title="holdfast")), "utf-8")

    def close(self) -> None:
        os.close(self._ours)  # a hang-up ends the shell and its programs
        self._shell.wait(LIMIT_SECONDS)
        shutil.rmtree(self._home)


def _style(char: Char) -> Style:
    def color(name: str) -> str | None:
        if name == "default":
            return None
        return f"#{name}" if re.fullmatch(r"[0-9a-f]{6}", name) else COLORS.get(name, name)

    return Style(
        color=color(char.fg), bgcolor=color(char.bg), bold=char.bold, italic=char.italics, underline=char.underscore
    )


def play_kill(terminal: Terminal) -> None:
    """A chat is killed while the model answers, and resumed."""
    terminal.see("$")
    terminal.type("holdfast")
    terminal.see("new session")
    terminal.type("Tell me a story about a lighthouse keeper.")
    terminal.see_characters(KILL_AFTER_CHARACTERS)
    terminal.type("!kill -9 $PPID")
    terminal.see("Killed $")
    terminal.type("holdfast --continue")
    terminal.see("Resume it?")
    terminal.settle()


def play_approval(terminal: Terminal) -> None:
    """A tool runs, another call waits for approval, and a slash command is used meanwhile."""
    terminal.make_directory("old-builds")
    terminal.see("$")
    terminal.type("holdfast --model scripted:tools")
    terminal.see("new session")
    terminal.type('use tool terminal {"command": "seq 1 200"}')
    terminal.see("done:")
    terminal.type('use tool terminal {"command": "rm -rf old-builds"}')
    terminal.see("Allow this?")
    terminal.type("/busy")
    terminal.see("is sent at once")
    terminal.settle()


def play_rewind(terminal: Terminal) -> None:
    """A file is edited, and the list of /rewind shows what going back would restore."""
    terminal.see("$")
    terminal.write("app.py", 'def greet(name):\n    return "Hello " + name\n\n\nprint(greet("you"))\n')
    terminal.type("holdfast --model scripted:tools")
    terminal.see("new session")
    call = {"path": "app.py", "old": '"Hello " + name', "new": 'f"Hello, {name}!"'}
    terminal.type(f"use tool edit_file {json.dumps(call)}")
    terminal.see("done:")
    terminal.type("Thank you")
    terminal.see("You said: Thank you")
    terminal.type("/rewind")
    terminal.see("Go back to before which message?")
    terminal.press(DOWN)
    terminal.see("would be taken back restore")
    terminal.settle()


def play_agents(terminal: Terminal) -> None:
    """A chat whose three sub-agents are at work is killed and resumed: it waits for the same ones."""
    until = "until [ -e go ]; do sleep 0.1; done"
    count = {"name": "terminal", "arguments": {"command": f"{until}; wc -l *.md"}}
    terminal.write("child.json", json.dumps({"steps": [{"call": [count]}, {"say": "It has no broken links."}]}))
    tasks = ("Check the links in README.md", "Check the links in docs", "Check the links in examples")
    calls = [{"name": "delegate", "arguments": {"task": task, "model": "scripted:child.json"}} for task in tasks]
    terminal.write("parent.json", json.dumps({"steps": [{"call": calls}, {"say": "No link is broken."}]}))
    terminal.see("$")
    terminal.type("holdfast --model scripted:parent.json")
    terminal.see("new session")
    terminal.type("Are there broken links?")
    terminal.see("links in examples")
    terminal.type("/agents")
    terminal.see("running: Check the links in examples")
    terminal.type("!kill -9 $PPID")
    terminal.see("Killed $")
    terminal.type("holdfast --continue")
    terminal.see("waits for the same sub-agents")
    terminal.write("go", "")
    terminal.type("y")
    terminal.see("No link is broken.")
    terminal.settle()


SCENES = {
    "chat.svg": play_kill,
    "chat-tools.svg": play_approval,
    "chat-rewind.svg": play_rewind,
    "chat-agents.svg": play_agents,
}
SCENE_ROWS = {"chat-rewind.svg": 24}
"""The height of the terminal for scenes that fill it."""


def main() -> None:
    for name in sys.argv[1:] or SCENES:
        terminal = Terminal(SCENE_ROWS.get(name, ROWS))
        try:
            SCENES[name](terminal)
            terminal.draw(name)
        finally:
            terminal.close()


if __name__ == "__main__":
    main()
