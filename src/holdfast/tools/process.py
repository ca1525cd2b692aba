"""Lets the model list, read, wait for and end the background processes of its session."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.model.errors import Invalid, NotFound, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.process import Process, duration
from holdfast.model.text import counted, truncate
from holdfast.model.tool import Effect, ToolContext, ToolOutput
from holdfast.processes.registry import SIGNALS, ProcessRegistry
from holdfast.store.database import Database
from holdfast.store.repos import sessions
from holdfast.tools.backends.port import CommandPlace
from holdfast.tools.home_guard import readable_folders, refusal_message
from holdfast.tools.spec import load_spec

if TYPE_CHECKING:
    from holdfast.tools.command_guard.command_risk import CommandVerdict

PAGE_BYTES = 20_000
WAIT_SECONDS = 30.0
MAX_WAIT_SECONDS = 3600
COMMAND_CHARS = 200
EARLY_SECONDS = 0.7
"""How long to wait after a start for a command that fails at once."""

Action = Literal["list", "log", "wait", "write", "signal", "kill"]
ACTIONS: list[Action] = ["list", "log", "wait", "write", "signal", "kill"]


class ProcessArguments(msgspec.Struct, frozen=True):
    action: Action
    id: str = ""
    all: bool = False
    offset: int | None = None
    seconds: float = WAIT_SECONDS
    text: str = ""
    close: bool = False
    signal: str = ""


class ProcessTool:
    repeatable = False
    spec = load_spec(
        "process",
        {
            "action": {"type": "string", "enum": ACTIONS},
            "id": {"type": "string", "description": "The process; required except for list."},
            "all": {"type": "boolean", "description": "For list: include all sessions and ended processes."},
            "offset": {"type": "integer", "minimum": 0, "description": "For log: the first byte to show."},
            "seconds": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "description": "For wait."},
            "text": {"type": "string", "description": "For write: the input."},
            "close": {"type": "boolean", "description": "For write: close its input afterwards."},
            "signal": {"type": "string", "enum": list(SIGNALS), "description": "For signal."},
        },
        ("action",),
    )

    def __init__(self, registry: ProcessRegistry, database: Database, *, home: Path | None = None) -> None:
        self._registry = registry
        self._database = database
        self._home = home

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        """Text written to a shell is checked like any command."""
        verdict = self._verdict(msgspec.convert(arguments, ProcessArguments), context)
        return () if verdict.refused else verdict.findings

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        return "none" if msgspec.convert(arguments, ProcessArguments).action in ("list", "log", "wait") else "act"

    def _verdict(self, parsed: ProcessArguments, context: ToolContext) -> "CommandVerdict":
        from holdfast.tools.command_guard.command_risk import CommandVerdict, check_command  # loads slowly

        if parsed.action != "write" or not parsed.text.strip():
            return CommandVerdict(())
        return check_command(parsed.text, self._home, context.workdir, readable_folders(context, self._home))

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, ProcessArguments)
        try:
            if refused := self._verdict(parsed, context).refused:
                raise Invalid(refusal_message(refused[0], context))
            if parsed.action == "list":
                return ToolOutput.say(await self._list(parsed, context))
            return await self._act(parsed, await self._get_own(parsed, context))
        except (NotFound, Invalid, Unavailable) as e:
            return ToolOutput.say(str(e), ok=False)

    async def _list(self, parsed: ProcessArguments, context: ToolContext) -> str:
        everything = await self._registry.list(ended=parsed.all)
        shown = everything if parsed.all else [one for one in everything if one.session_id == context.session_id]
        lines = [self._line(one, context) for one in shown]
        if others := len(everything) - len(shown):
            lines.append(f"[{others} more in other sessions; list them with all=true]")
        return "\n".join(lines) or "No background processes."

    def _line(self, process: Process, context: ToolContext) -> str:
        verdict = self._registry.classify(process)
        age = duration((self._registry.mono() - process.started_mono) / 1e6)
        owner = "" if process.session_id == context.session_id else f" [session {process.session_id}]"
        blocks = "; it blocks a reset of its session" if verdict.blocks else ""
        pid = "" if process.ended_at is not None else f", pid {process.pid}, started {age} ago"
        return f"{process.id} {verdict.kind}{pid}{owner}: {shorten(process.command)}\n  {verdict.evidence}{blocks}"

    async def _get_own(self, parsed: ProcessArguments, context: ToolContext) -> Process:
        """The process with that id, if it belongs to this session or to an earlier one of the same channel."""
        if not parsed.id:
            raise Invalid(f"{parsed.action} needs the id of a process; get it with list")
        process = await self._registry.get(parsed.id)
        if process.session_id == context.session_id:
            return process
        ours = await self._database.read(sessions.get, context.session_id)
        theirs = await self._database.read(sessions.get, process.session_id)
        if ours.summary.channel is None or ours.summary.channel != theirs.summary.channel:
            raise Invalid(
                f"process {process.id} belongs to session {process.session_id}, not to this one; "
                f"a person can end it with 'holdfast ps kill {process.id}'"
            )
        return process

    async def _act(self, parsed: ProcessArguments, process: Process) -> ToolOutput:
        match parsed.action:
            case "log":
                return ToolOutput.say(await self._log(process, parsed.offset))
            case "wait":
                process = await self._registry.wait(process, parsed.seconds)
                return ToolOutput.say(f"{self._state(process)}\n{await self._log(process, None)}")
            case "write":
                taken = await self._registry.write(process, parsed.text, close=parsed.close)
                whole = len(parsed.text.encode("utf-8", "surrogateescape"))
                closed = "; its input is closed" if parsed.close else ""
                return ToolOutput.say(f"wrote {taken} of {whole} bytes{closed}", ok=taken == whole)
            case "signal":
                count = await self._registry.signal(process, parsed.signal)
                return ToolOutput.say(f"sent {parsed.signal or 'nothing'} to {counted(count, 'program')}", ok=count > 0)
            case "kill" | "list":
                process = await self._registry.stop(process, "ended by the agent")
                return ToolOutput.say(self._state(process))

    async def _log(self, process: Process, offset: int | None) -> str:
        page = await self._registry.read_output(process, offset, PAGE_BYTES)
        notes = [f"[bytes {page.start} to {page.end} of {page.total}"]
        if page.gone:
            notes.append(f"the first {page.gone} were dropped")
        if page.end < page.total:
            notes.append(f"continue with offset={page.end}")
        text = page.text.removesuffix("\n") or "(no output)"
        return f"{text}\n{'; '.join(notes)}]"

    def _state(self, process: Process) -> str:
        verdict = self._registry.classify(process)
        return f"process {process.id} is {verdict.kind}: {verdict.evidence}"

    async def start(self, command: str, place: CommandPlace, context: ToolContext) -> ToolOutput:
        """Start a background process for `terminal`."""
        try:
            process = await self._registry.start(command, place.workdir, context.session_id, launch_plan=place.launch)
        except Unavailable as e:
            return ToolOutput.say(str(e), ok=False)
        process = await self._registry.wait(process, EARLY_SECONDS)
        page = await self._registry.read_output(process, None, PAGE_BYTES)
        text = f"\n{page.text}" if page.text else ""
        if process.ended_at is not None:
            how = f"process {process.id} started and ended at once: {process.end_reason}"
            return ToolOutput.say(f"{how}{text}", ok=process.exit_code == 0)
        how = f"started as process {process.id}, pid {process.pid}; follow it with the process tool"
        return ToolOutput.say(f"{how}{text}")


def shorten(command: str) -> str:
    """A command on one line of a list."""
    return truncate(" ".join(command.split()), COMMAND_CHARS)
