"""Runs shell commands with a time limit and an output limit; background commands go to the process registry."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.secret_names import without_secrets
from holdfast.model.tool import Effect, Preview, ToolContext, ToolOutput
from holdfast.processes.process_dir import LaunchPlan
from holdfast.processes.shell import find_shell
from holdfast.processes.terminate import MONITORS
from holdfast.tasks import running
from holdfast.tools import subprocesses
from holdfast.tools.backends.port import CommandPlace
from holdfast.tools.backends.registry import SHARED_FILES, Backends, only_local
from holdfast.tools.command_snapshots import CommandSnapshots
from holdfast.tools.home_guard import is_protected, readable_folders, refusal_message
from holdfast.tools.live_output import LiveOutput
from holdfast.tools.output_capture import OutputCapture
from holdfast.tools.paths import check_folder, check_path_text, resolve
from holdfast.tools.spec import load_spec

if TYPE_CHECKING:
    from holdfast.tools.command_guard.command_risk import CommandVerdict

DEFAULT_SECONDS = 120
MAX_SECONDS = 3600
LINGER_SECONDS = 0.5
"""Time for processes that the shell does not wait for, such as `>(tee log)`, to finish after it."""
DRAIN_SECONDS = 1.0
"""Time to read the rest of the pipe after the process group has ended."""
SHELL_SIGNALS = 128
"""Shells and the sandbox report a program ended by signal N as exit code 128 + N."""
SIGNALS = {number.value: number.name for number in signal.Signals}

Recording = Callable[[ToolContext, str, Path, int], AbstractContextManager[None]]
"""Records a running command with its folder and pid, so that it is found if this worker is killed."""
StartBackground = Callable[[str, CommandPlace, ToolContext], Awaitable[ToolOutput]]
"""Starts a command as a background process of the session; the result says how to follow it."""


class TerminalArguments(msgspec.Struct, frozen=True):
    command: str
    workdir: str = "."
    timeout_seconds: float = DEFAULT_SECONDS
    background: bool = False


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended, and which processes it left running."""

    exit_code: int
    seconds: float
    is_late: bool
    left_behind: list[str]
    is_held: bool
    """Whether a process outside the group still has the output open."""


class TerminalTool:
    repeatable = False
    spec = load_spec(
        "terminal",
        {
            "command": {"type": "string", "description": "The command line for bash."},
            "workdir": {"type": "string", "description": "The folder to run in, relative to the working folder."},
            "timeout_seconds": {
                "type": "number",
                "minimum": 0.1,
                "maximum": MAX_SECONDS,
                "description": f"Time limit; default {DEFAULT_SECONDS}.",
            },
            "background": {"type": "boolean", "description": "Start it and return at once."},
        },
        ("command",),
    )

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        home: Path | None = None,
        start_background: StartBackground | None = None,
        recording: Recording | None = None,
        backends: Backends | None = None,
        snapshots: CommandSnapshots | None = None,
    ) -> None:
        self._environment = without_secrets(environment)
        self._home = home
        self._backends = backends or only_local()
        self._start_background = start_background
        self._snapshots = snapshots
        self._recording = recording or (lambda *_: nullcontext())

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        verdict = self._verdict(msgspec.convert(arguments, TerminalArguments), context)
        return () if verdict.refused else verdict.findings

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        from holdfast.tools.command_guard.read_only import is_read_only  # loads slowly

        parsed = msgspec.convert(arguments, TerminalArguments)
        return "none" if not parsed.background and is_read_only(parsed.command) else "act"

    def _verdict(self, parsed: TerminalArguments, context: ToolContext) -> "CommandVerdict":
        from holdfast.tools.command_guard.command_risk import check_command  # loads slowly

        workdir = context.workdir / os.path.expanduser(parsed.workdir)  # noqa: PTH111 - never fails
        # Holdfast's home is not in a backend that has other files.
        home = self._home if context.terminal in SHARED_FILES else None
        return check_command(parsed.command, home, workdir, readable_folders(context, home))

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        from holdfast.tools.command_guard.simple_command import simple_words

        parsed = msgspec.convert(arguments, TerminalArguments)
        workdir = _normalize(resolve(parsed.workdir, context.workdir))
        return Preview(command=parsed.command, words=simple_words(parsed.command), workdir=workdir)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, TerminalArguments)
        try:
            if "\0" in parsed.command:
                raise Invalid("the command contains a NUL character; remove it")
            os.fsencode(parsed.command)
            place = await self._place(parsed, context)
        except (Invalid, Unavailable, UnicodeEncodeError) as e:
            return ToolOutput.say(str(e), ok=False)
        if parsed.background:
            return await self._run_in_background(parsed.command, place, context)
        with OutputCapture(context.files, f"terminal-{context.call_id}") as capture:
            notes: list[str] = []
            try:
                async with self._recorded(parsed, place, context, notes):
                    result = await self._run(parsed, place, capture, context)
            except OSError as e:
                return ToolOutput.say(f"the command could not be started: {e}", ok=False)
        if capture.path is not None:
            await asyncio.to_thread(capture.make_durable)
        return ToolOutput.say(
            "\n".join([_report(capture, result, parsed), *notes]), ok=result.exit_code == 0 and not result.is_late
        )

    def _recorded(
        self, parsed: TerminalArguments, place: CommandPlace, context: ToolContext, notes: list[str]
    ) -> AbstractAsyncContextManager[None]:
        """Record the files that the command changes, if that is wanted and it may change files of this machine."""
        from holdfast.tools.command_guard.read_only import is_read_only  # loads slowly

        if self._snapshots is None or place.launch.is_relayed or is_read_only(parsed.command):
            return nullcontext()
        return self._snapshots.around(context, notes)

    async def _place(self, parsed: TerminalArguments, context: ToolContext) -> CommandPlace:
        """Where the command runs, made ready. Raises Invalid and Unavailable."""
        backend = self._backends.of(context)
        await backend.prepare(context)
        if backend.shares_files:
            workdir = started_in = await asyncio.to_thread(self._workdir, parsed, context)
        else:
            check_path_text(parsed.workdir)
            workdir, started_in = backend.workdir(context) / parsed.workdir, context.workdir
        prefix = backend.prefix(context, workdir, background=parsed.background)
        return CommandPlace(workdir, LaunchPlan(started_in, prefix, is_relayed=not backend.shares_files))

    def _workdir(self, parsed: TerminalArguments, context: ToolContext) -> Path:
        """The directory to run in. Raises Invalid if the command would use Holdfast's home."""
        workdir = check_folder(resolve(parsed.workdir, context.workdir))
        if is_protected(workdir, self._home, readable_folders(context, self._home)):
            raise Invalid(refusal_message(parsed.workdir, context))
        if refused := self._verdict(parsed, context).refused:
            raise Invalid(refusal_message(refused[0], context))
        return workdir

    async def _run_in_background(self, command: str, place: CommandPlace, context: ToolContext) -> ToolOutput:
        if self._start_background is None:
            return ToolOutput.say("background processes are not available here; nothing was started", ok=False)
        return await self._start_background(command, place, context)

    async def _run(
        self, parsed: TerminalArguments, place: CommandPlace, capture: OutputCapture, context: ToolContext
    ) -> CommandResult:
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with subprocesses.open_pipe() as (write_end, reader):
            command = (*place.launch.prefix, find_shell(), "-c", parsed.command)
            with write_end:
                process = await subprocesses.start(
                    command,
                    workdir=place.launch.workdir,
                    output=write_end,
                    errors=write_end,
                    environment=self._environment,
                )
            with self._recording(context, parsed.command, place.workdir, process.pid):
                live = LiveOutput(capture, context.host)
                async with running(_read_output(reader, capture, live), live.show()) as (pump, _):
                    try:
                        is_late = await _times_out(process, parsed.timeout_seconds)
                        left_behind = await _end_leftovers(process, pump, is_late=is_late)
                        is_held = not pump.done()
                    except asyncio.CancelledError:
                        await subprocesses.end_group(process)
                        raise
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        return CommandResult(code, loop.time() - started, is_late, left_behind, is_held)


def _normalize(path: Path) -> Path:
    return Path(os.path.normpath(path))


async def _read_output(reader: asyncio.StreamReader, capture: OutputCapture, live: LiveOutput) -> None:
    while chunk := await reader.read(subprocesses.CHUNK_BYTES):
        if capture.touches_disk:
            await asyncio.to_thread(capture.feed, chunk)
        else:
            capture.feed(chunk)
        live.note()


async def _times_out(process: Process, seconds: float) -> bool:
    """Wait for the shell to end; return whether it exceeded its time limit."""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return True
    return False


async def _end_leftovers(process: Process, pump: asyncio.Future[None], *, is_late: bool) -> list[str]:
    """End what is left of the process group and read the rest of the output; return the names of the processes ended."""
    left_behind = []
    if not is_late:
        deadline = asyncio.get_running_loop().time() + LINGER_SECONDS
        await asyncio.wait({pump}, timeout=LINGER_SECONDS)
        left_behind = await _remaining(process.pid, deadline)
    if is_late or left_behind:
        await subprocesses.end_group(process)
    await asyncio.wait({pump}, timeout=DRAIN_SECONDS)
    return left_behind


async def _remaining(group: int, deadline: float) -> list[str]:
    """The names of the processes still running at the deadline: one that has closed its output may be about to exit."""
    loop = asyncio.get_running_loop()
    # The kernel sends no notification when a process group ends, so poll.
    while (names := await asyncio.to_thread(subprocesses.list_group, group)) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(subprocesses.POLL_SECONDS)
    return [name for name in names if name not in MONITORS]


def _report(capture: OutputCapture, result: CommandResult, parsed: TerminalArguments) -> str:
    text = capture.text()
    lines = [text.removesuffix("\n") if text else "(no output)"]
    lines.append(f"[{_describe_end(result, parsed)}; ran for {result.seconds:.1f} s]")
    if result.left_behind:
        names = ", ".join(result.left_behind[:10])
        lines.append(f"[processes it left running were ended: {names}]")
    if result.is_held:
        lines.append("[a process that left the command's process group is still running; its output is no longer read]")
    return "\n".join(lines)


def _describe_end(result: CommandResult, parsed: TerminalArguments) -> str:
    if result.is_late:
        return f"stopped at the time limit of {parsed.timeout_seconds:g} s"
    if result.exit_code < 0:
        return f"ended by signal {SIGNALS.get(-result.exit_code, -result.exit_code)}"
    if result.exit_code - SHELL_SIGNALS in SIGNALS:
        return f"exit code {result.exit_code} (signal {SIGNALS[result.exit_code - SHELL_SIGNALS]})"
    return f"exit code {result.exit_code}"
