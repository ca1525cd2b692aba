"""Runs the writer under strace, which kills it or injects an error at a chosen system call.

strace counts calls per thread, and the store uses several: one creates the file, one attaches to it, one writes, one
reads, one closes. So the writer stops at a gate before each of these phases, and strace attaches there. Within a phase
only one thread makes each kind of call (a test checks that), so the nth call is well defined. A process that is killed at
a call dies before the call is made.
"""

import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.crash.output import Line, acknowledged
from tests.crash.programs import Process, program

T = TypeVar("T")
PHASES = ("open", "attach", "main", "read", "close")
CHANGING = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink", "mkdir", "fchown", "write")
"""The calls by which the writer changes files; `write` is the acknowledgement itself."""
NOT_USED = [
    "pwritev",
    "pwritev2",
    "writev",
    "sync",
    "syncfs",
    "sync_file_range",
    "truncate",
    "fallocate",
    "rename",
    "renameat",
    "renameat2",
    "unlinkat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mkdirat",
    "rmdir",
    "copy_file_range",
    "sendfile",
    "splice",
    "msync",
    "io_uring_enter",
]
"""Other calls that could change files. A test checks that the writer makes none of them."""
SIDE_BY_SIDE = 2

_CALL = re.compile(r"^(\d+)\s+(\w+)\((?:\d+<([^>]*)>)?")
_GATE = re.compile(r'write\(.*"{\\"gate\\": \\"(\w+)\\"')
_LEFT_OPEN = "<unfinished ...>"


@dataclass(frozen=True)
class Call:
    """One system call of a trace; `file` is the path of its first descriptor."""

    phase: str
    thread: str
    name: str
    file: str
    injected: bool


@dataclass(frozen=True, repr=False)
class Run:
    """The result of one run of the writer."""

    code: int
    lines: list[Line]
    calls: list[Call]
    stderr: str

    @property
    def acknowledged(self) -> list[Line]:
        return acknowledged(self.lines)

    @property
    def reached(self) -> str:
        """The phase in which the run ended, or `end`."""
        gates = [str(line["gate"]) for line in self.lines if line.get("gate") in PHASES]
        return "end" if {"closed": True} in self.lines else gates[-1]

    @property
    def failed(self) -> list[Line]:
        return [line for line in self.lines if "failed" in line]

    @property
    def injected(self) -> list[Call]:
        return [call for call in self.calls if call.injected]

    def __repr__(self) -> str:
        said = "\n".join(f"  {line}" for line in self.lines[-6:])
        return f"exit code {self.code}; injected: {self.injected}; last lines:\n{said}\n{self.stderr}"


@dataclass(frozen=True)
class Injection:
    """What strace does to one call of a phase, in the syntax of its `inject` option."""

    phase: str
    calls: str
    action: str

    @property
    def permanent(self) -> bool:
        """Whether it applies to that call and all later ones."""
        return self.action.endswith("+")


def need_strace() -> None:
    """Fail if strace is not installed."""
    assert shutil.which("strace") is not None, "strace is not installed (scripts/system-packages installs it)"


def run(home: Path, arguments: Iterable[object], injection: Injection | None = None) -> Run:
    """Run the writer's scenario in `home`; without an injection, trace all of it.

    A tracer that injects once detaches at the next gate, or after the writer has reported a failure. One with a
    permanent injection stays attached.
    """
    trace = home.with_name(home.name + ".trace")
    with ExitStack() as stack:
        writer = stack.enter_context(program("writer", home, "--gates", *arguments))
        tracer: Process | None = None
        for gate in _gates(writer):
            if tracer is not None and injection is not None and not injection.permanent:
                tracer.interrupt()
                tracer = None
            elif gate == (injection.phase if injection else PHASES[0]):
                tracer = stack.enter_context(_tracer(writer, trace, injection))
            writer.send("go")
        code = writer.wait()
        if tracer is not None:
            tracer.wait()
    calls = list(parse(trace.read_text("utf-8", "replace"), injection.phase if injection else PHASES[0]))
    trace.unlink()
    return Run(code, writer.lines(), calls, writer.stderr)


def _gates(writer: Process) -> Iterable[str]:
    """The gates at which the writer waits, until it ends."""
    seen = 0
    while writer.wait_for_output('"gate"', times=seen + 1):
        seen += 1
        yield [str(line["gate"]) for line in writer.lines() if "gate" in line][seen - 1]


def _tracer(writer: Process, trace: Path, injection: Injection | None) -> Process:
    options = ["-f", "-y", "-p", str(writer.pid), "-o", str(trace)]
    if injection is None:
        options += ["-e", f"trace={','.join((*CHANGING, *NOT_USED, 'pread64'))}"]
    else:
        # strace injects only into calls that it traces.
        options += ["-e", f"trace={injection.calls}", "-e", f"inject={injection.calls}:{injection.action}"]
    tracer = Process("strace", *options)
    if not tracer.wait_for_output("attached", "stderr"):
        tracer.kill()
        raise AssertionError(f"strace could not attach: {tracer.stderr}")
    return tracer


def parse(text: str, phase: str) -> Iterable[Call]:
    """The calls of a trace in the order in which they started."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _CALL.match(line)
        if match is None:
            continue
        thread, name, file = match.groups()
        end = line
        if _LEFT_OPEN in line:
            resumed = (rest for rest in lines[number + 1 :] if rest.split()[:1] == [thread] and "resumed>" in rest)
            end = next(resumed, line)
        yield Call(phase, thread, name, file or "", "(INJECTED)" in end)
        if gate := _GATE.search(line):
            phase = gate[1]


def side_by_side(act: Callable[..., T], tries: Iterable[tuple[Any, ...]]) -> list[T]:
    """Run two at a time; raise the first failure after those under way have ended."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        doing = [pool.submit(act, *one) for one in tries]
        try:
            return [one.result() for one in doing]
        finally:
            for one in doing:
                one.cancel()
