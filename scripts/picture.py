"""Makes the pictures of the chat in docs/images: plays the scenes below for real, in homes of their own, and draws what the terminal showed.

Nothing in the pictures is made up: the first scene is played by the embedded model, the second by the scripted one, and
the status line says so. If a scene does not go as it says here, no picture is written.
"""

import fcntl
import itertools
import os
import re
import select
import shutil
import signal
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
WIDTH = 92
ROWS = 60
LIMIT_SECONDS = 120.0
QUIET_SECONDS = 1.0
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Fonts that would be fetched from elsewhere; the reader's own monospaced one does as well."""
FAINT = re.compile(rb"\x1b\[(?:0;)?2m")
COLORS = {"brown": "yellow", "brightbrown": "bright_yellow", "brightblack": "bright_black"}
CTRL_C, CTRL_D = "\x03", "\x04"


class Stage:
    """One terminal, in which programs are started one after another."""

    def __init__(self) -> None:
        self._home = tempfile.mkdtemp(prefix="holdfast-picture-")
        self._screen = pyte.Screen(WIDTH, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._ours = -1
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: str, **environment: str) -> None:
        """Type a command at a shell's prompt."""
        self._write(f"\x1b[1;32m$ {command}\x1b[0m\r\n".encode())
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, WIDTH, 0, 0))
        commands = str(Path(sys.executable).parent)
        known = {"HOME": self._home, "PATH": f"{commands}:{os.environ['PATH']}", "TERM": "xterm-256color"}
        self._child = subprocess.Popen(
            ["setsid", "--ctty", "bash", "-c", f"exec {command}"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self._home,
            env={**known, "LANG": "C.UTF-8", **environment},
        )
        os.close(theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def see(self, words: str) -> None:
        self._until(lambda: words in " ".join(" ".join(self._screen.display).split()), words)

    def see_letters(self, count: int) -> None:
        """Wait until the terminal shows so many letters."""
        self._until(lambda: sum(len(line.strip()) for line in self._screen.display) >= count, f"{count} letters")

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not true():
            if time.monotonic() > end or not self._read(0.1):
                shown = "\n".join(self._screen.display)
                sys.exit(f"never saw {what!r}; no picture was written. The terminal shows:\n{shown}")

    def _read(self, seconds: float) -> bool:
        try:
            if select.select([self._ours], [], [], seconds)[0]:
                self._write(os.read(self._ours, 65536))
        except OSError:  # how Linux says that the other end of a terminal is closed
            return False
        return True

    def _write(self, data: bytes) -> None:
        self._stream.feed(FAINT.sub(b"\x1b[90m", data))  # pyte knows no faint letters

    def kill(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._end(-signal.SIGKILL)
        # What was drawn stays, and the shell goes on below it.
        self._write(b"\x1b[%d;1H\x1b[J\x1b[1;31mKilled\x1b[0m\r\n\r\n" % (self._last_row() + 1))

    def leave(self) -> None:
        self.press(CTRL_D)
        self._end(0)

    def _last_row(self) -> int:
        return max(n for n, line in enumerate(self._screen.display, 1) if line.strip())

    def _end(self, code: int) -> None:
        assert self._child is not None
        while self._read(0.2) and self._child.poll() is None:
            pass
        if self._child.wait(LIMIT_SECONDS) != code:
            sys.exit(f"it ended with {self._child.returncode}, not {code}; no picture was written")
        os.close(self._ours)

    def settle(self) -> None:
        """Wait until nothing more is drawn."""
        end = time.monotonic() + LIMIT_SECONDS
        while select.select([self._ours], [], [], QUIET_SECONDS)[0] and self._read(0):
            if time.monotonic() > end:
                sys.exit("the terminal does not come to rest; no picture was written")

    def make_folder(self, name: str) -> None:
        Path(self._home, name).mkdir()

    def draw(self, name: str) -> None:
        console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
        for row in range(self._last_row()):
            chars = [self._screen.buffer[row][column] for column in range(WIDTH)]
            line = Text()
            for style, run in itertools.groupby(chars, _style):
                line.append("".join(char.data for char in run), style)
            line.rstrip()
            console.print(line)
        IMAGES.mkdir(parents=True, exist_ok=True)
        (IMAGES / name).write_text(FONTS.sub("", console.export_svg(title="holdfast")), "utf-8")

    def close(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        shutil.rmtree(self._home)


def _style(char: Char) -> Style:
    def color(name: str) -> str | None:
        if name == "default":
            return None
        return f"#{name}" if re.fullmatch(r"[0-9a-f]{6}", name) else COLORS.get(name, name)

    return Style(
        color=color(char.fg), bgcolor=color(char.bg), bold=char.bold, italic=char.italics, underline=char.underscore
    )


def killed(stage: Stage) -> None:
    """A chat is killed in mid-sentence, and goes on."""
    stage.start("holdfast")
    stage.see("❯")
    stage.press("What is the capital of France?\r")
    stage.see("· What is the capital of France?")
    stage.press("Tell me a story about that city.\r")
    stage.see_letters(900)
    stage.kill()
    stage.start("holdfast chat --continue")
    stage.see("Go on with it?")
    stage.settle()


def asked(stage: Stage) -> None:
    """A tool runs, another one is asked about, and words wait meanwhile."""
    stage.make_folder("old-builds")
    stage.start("holdfast", HOLDFAST_MODEL="scripted:tools")
    stage.see("❯")
    stage.press('use tool terminal {"command": "seq 1 200"}\r')
    stage.see("done:")
    stage.press('use tool terminal {"command": "rm -rf old-builds"}\r')
    stage.see("Allow it?")
    stage.press("/busy\r")
    stage.see("they end the turn that runs")
    stage.settle()


SCENES = {"chat.svg": killed, "chat-tools.svg": asked}


def main() -> None:
    for name, scene in SCENES.items():
        stage = Stage()
        try:
            scene(stage)
            stage.draw(name)
        finally:
            stage.close()


if __name__ == "__main__":
    main()
