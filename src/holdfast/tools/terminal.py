"""Shell commands with a limit on their time and on the output they can leave behind; those in the background are handed on."""

import asyncio
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.tool import Output, Scene
from holdfast.tools import children
from holdfast.tools.capture import Capture
from holdfast.tools.describe import spec
from holdfast.tools.paths import folder, resolve
from holdfast.tools.risks import why_risky

SHELL = "/bin/bash"
DEFAULT_SECONDS = 120
MAX_SECONDS = 3600
LINGER_SECONDS = 0.5
"""For those the shell does not wait for, such as `>(tee log)`, to finish after it."""
DRAIN_SECONDS = 1.0
"""For what is left in the pipe when all of the group are gone."""
SIGNALS = {number.value: number.name for number in signal.Signals}

SECRET = re.compile(
    r"(OPENAI|ANTHROPIC|HOLDFAST)_.*|(.*_)?(API)?(KEY|KEY_ID|TOKEN|SECRET|CREDENTIALS|PAT|DSN)|.*(PASSWORD|PASSWD|PASSPHRASE)|(DATABASE|REDIS|MONGO.*|POSTGRES.*)_URL",
    re.IGNORECASE,
)

StartBackground = Callable[[str, Path, Scene], Awaitable[Output]]
"""Starts a command in a folder as a background process of the session and tells the model how to follow it."""


class Asked(msgspec.Struct, frozen=True):
    command: str
    workdir: str = "."
    timeout_seconds: float = DEFAULT_SECONDS
    background: bool = False


class Ending(msgspec.Struct, frozen=True):
    """How a command ended, and what it left."""

    exit_code: int
    seconds: float
    is_late: bool
    left_behind: list[str]
    is_held: bool
    """Whether a process outside the group still holds the output."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables a command may see: those whose names do not look like passwords and keys."""
    return {name: value for name, value in environment.items() if not SECRET.fullmatch(name)}


class Terminal:
    repeatable = False
    spec = spec(
        "terminal",
        {
            "command": {"type": "string", "description": "The text that bash runs."},
            "workdir": {"type": "string", "description": "The folder to run in; relative to the working folder."},
            "timeout_seconds": {
                "type": "number",
                "minimum": 0.1,
                "maximum": MAX_SECONDS,
                "description": f"When to stop it; {DEFAULT_SECONDS} if not given.",
            },
            "background": {"type": "boolean", "description": "Start it and come back at once."},
        },
        ("command",),
    )

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        home: Path | None = None,
        start_background: StartBackground | None = None,
    ) -> None:
        self._environment = without_secrets(environment)
        self._home = home
        self._start_background = start_background

    def risk(self, arguments: dict[str, object]) -> str | None:
        return why_risky(msgspec.convert(arguments, Asked).command, self._home)

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        try:
            workdir = await asyncio.to_thread(lambda: folder(resolve(asked.workdir, scene.workdir)))
            if "\0" in asked.command:
                raise Invalid("the command holds a NUL, which no program can be given")
            os.fsencode(asked.command)
        except (Invalid, UnicodeEncodeError) as e:
            return Output.say(str(e), ok=False)
        if asked.background:
            return await self._to_background(asked.command, workdir, scene)
        with Capture(scene.files, f"terminal-{scene.call_id}") as capture:
            try:
                ending = await self._run(asked, workdir, capture)
            except OSError as e:
                return Output.say(f"the command could not be started: {e}", ok=False)
        return Output.say(_report(capture, ending, asked), ok=ending.exit_code == 0 and not ending.is_late)

    async def _to_background(self, command: str, workdir: Path, scene: Scene) -> Output:
        if self._start_background is None:
            return Output.say("background processes are not available here; nothing was started", ok=False)
        return await self._start_background(command, workdir, scene)

    async def _run(self, asked: Asked, workdir: Path, capture: Capture) -> Ending:
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with children.listening() as (mouth, reader):
            command = (SHELL, "-c", asked.command)
            with mouth:
                process = await children.start(
                    command, workdir=workdir, output=mouth, errors=mouth, environment=self._environment
                )
            pump = asyncio.ensure_future(_pump(reader, capture))
            try:
                is_late = await _outlasts(process, asked.timeout_seconds)
                left_behind = await _clear(process, pump, is_late=is_late)
                is_held = not pump.done()
            except asyncio.CancelledError:
                await children.end(process)
                raise
            finally:
                pump.cancel()
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        return Ending(code, loop.time() - started, is_late, left_behind, is_held)


async def _pump(reader: asyncio.StreamReader, capture: Capture) -> None:
    while chunk := await reader.read(children.CHUNK_BYTES):
        if capture.touches_disk:
            await asyncio.to_thread(capture.feed, chunk)
        else:
            capture.feed(chunk)


async def _outlasts(process: Process, seconds: float) -> bool:
    """Wait for the shell to end; whether it took longer than it may."""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return True
    return False


async def _clear(process: Process, pump: asyncio.Future[None], *, is_late: bool) -> list[str]:
    """End all that is left of the group and read the rest of the output; the names of what was left behind."""
    left_behind = []
    if not is_late:
        await asyncio.wait({pump}, timeout=LINGER_SECONDS)
        left_behind = await asyncio.to_thread(children.members, process.pid)
    if is_late or left_behind:
        await children.end(process)
    await asyncio.wait({pump}, timeout=DRAIN_SECONDS)
    return left_behind


def _report(capture: Capture, ending: Ending, asked: Asked) -> str:
    text = capture.text()
    lines = [text.removesuffix("\n") if text else "(no output)"]
    lines.append(f"[{_how(ending, asked)}; it ran for {ending.seconds:.1f} s]")
    if ending.left_behind:
        names = ", ".join(ending.left_behind[:10])
        lines.append(f"[processes it left behind were ended: {names}]")
    if ending.is_held:
        lines.append("[a process that left the command's group lives on; its output is no longer read]")
    return "\n".join(lines)


def _how(ending: Ending, asked: Asked) -> str:
    if ending.is_late:
        return f"stopped at its time limit of {asked.timeout_seconds:g} s"
    if ending.exit_code < 0:
        return f"ended by signal {SIGNALS.get(-ending.exit_code, -ending.exit_code)}"
    return f"exit code {ending.exit_code}"
