"""Lets the model look after the background processes of its session."""

from pathlib import Path
from typing import Literal

import msgspec

from holdfast.model.errors import Invalid, NotFound, Unavailable
from holdfast.model.process import Process, duration
from holdfast.model.tool import Output, Scene
from holdfast.processes.registry import SIGNALS, Registry
from holdfast.store import sessions
from holdfast.store.database import Database
from holdfast.tools.describe import spec
from holdfast.tools.risks import why_risky

PAGE_BYTES = 20_000
WAIT_SECONDS = 30.0
MAX_WAIT_SECONDS = 3600
COMMAND_CHARS = 200
EARLY_SECONDS = 0.7
"""After a start, for a command that fails at once to say so."""

Action = Literal["list", "log", "wait", "write", "signal", "kill"]
ACTIONS: list[Action] = ["list", "log", "wait", "write", "signal", "kill"]


class Asked(msgspec.Struct, frozen=True):
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
    spec = spec(
        "process",
        {
            "action": {"type": "string", "enum": ACTIONS},
            "id": {"type": "string", "description": "Which process; needed for all but list."},
            "all": {"type": "boolean", "description": "For list: of every session, ended ones too."},
            "offset": {"type": "integer", "minimum": 0, "description": "For log: the first byte to show."},
            "seconds": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "description": "For wait."},
            "text": {"type": "string", "description": "For write: the input."},
            "close": {"type": "boolean", "description": "For write: close its input afterwards."},
            "signal": {"type": "string", "enum": list(SIGNALS), "description": "For signal."},
        },
        ("action",),
    )

    def __init__(self, registry: Registry, database: Database, *, home: Path | None = None) -> None:
        self._registry = registry
        self._database = database
        self._home = home

    def risk(self, arguments: dict[str, object]) -> str | None:
        """What is written to a shell is a command like any other."""
        asked = msgspec.convert(arguments, Asked)
        return why_risky(asked.text, self._home) if asked.action == "write" and asked.text.strip() else None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        try:
            if asked.action == "list":
                return Output.say(await self._list(asked, scene))
            return await self._act(asked, await self._own(asked, scene))
        except (NotFound, Invalid, Unavailable) as e:
            return Output.say(str(e), ok=False)

    async def _list(self, asked: Asked, scene: Scene) -> str:
        everything = await self._registry.list(ended=asked.all)
        shown = everything if asked.all else [one for one in everything if one.session_id == scene.session_id]
        lines = [self._line(one, scene) for one in shown]
        if others := len(everything) - len(shown):
            lines.append(f"[{others} more of other sessions; list with all=true shows them]")
        return "\n".join(lines) or "No background processes."

    def _line(self, process: Process, scene: Scene) -> str:
        seen = self._registry.judge(process)
        age = duration((self._registry.mono() - process.started_mono) / 1e6)
        owner = "" if process.session_id == scene.session_id else f" [session {process.session_id}]"
        blocks = "; it holds back a reset of its session" if seen.blocks else ""
        pid = "" if process.ended_at is not None else f", pid {process.pid}, started {age} ago"
        return f"{process.id} {seen.kind}{pid}{owner}: {shortened(process.command)}\n  {seen.evidence}{blocks}"

    async def _own(self, asked: Asked, scene: Scene) -> Process:
        """The process that is meant, if it is this session's or of an earlier one of the same channel."""
        if not asked.id:
            raise Invalid(f"{asked.action} needs the id of a process; list shows them")
        process = await self._registry.get(asked.id)
        if process.session_id == scene.session_id:
            return process
        ours = await self._database.read(sessions.get, scene.session_id)
        theirs = await self._database.read(sessions.get, process.session_id)
        if ours.summary.channel is None or ours.summary.channel != theirs.summary.channel:
            raise Invalid(
                f"process {process.id} belongs to session {process.session_id}, not to this one; "
                f"a person can end it with 'holdfast ps kill {process.id}'"
            )
        return process

    async def _act(self, asked: Asked, process: Process) -> Output:
        match asked.action:
            case "log":
                return Output.say(await self._log(process, asked.offset))
            case "wait":
                process = await self._registry.wait(process, asked.seconds)
                return Output.say(f"{self._state(process)}\n{await self._log(process, None)}")
            case "write":
                taken = await self._registry.write(process, asked.text, close=asked.close)
                whole = len(asked.text.encode("utf-8", "surrogateescape"))
                closed = "; its input is closed" if asked.close else ""
                return Output.say(f"it was given {taken} of {whole} bytes{closed}", ok=taken == whole)
            case "signal":
                count = await self._registry.signal(process, asked.signal)
                return Output.say(f"{asked.signal or 'nothing'} was sent to {count} programs", ok=count > 0)
            case "kill" | "list":
                process = await self._registry.stop(process, "ended by the agent")
                return Output.say(self._state(process))

    async def _log(self, process: Process, offset: int | None) -> str:
        page = await self._registry.read_output(process, offset, PAGE_BYTES)
        notes = [f"[bytes {page.start} to {page.end} of {page.total}"]
        if page.gone:
            notes.append(f"the first {page.gone} were dropped")
        if page.end < page.total:
            notes.append(f"read on with offset={page.end}")
        text = page.text.removesuffix("\n") or "(no output)"
        return f"{text}\n{'; '.join(notes)}]"

    def _state(self, process: Process) -> str:
        seen = self._registry.judge(process)
        return f"process {process.id} is {seen.kind}: {seen.evidence}"

    async def start(self, command: str, workdir: Path, scene: Scene) -> Output:
        """What `terminal` does with `background`."""
        try:
            process = await self._registry.start(command, workdir, scene.session_id)
        except Unavailable as e:
            return Output.say(str(e), ok=False)
        process = await self._registry.wait(process, EARLY_SECONDS)
        page = await self._registry.read_output(process, None, PAGE_BYTES)
        text = f"\n{page.text}" if page.text else ""
        if process.ended_at is not None:
            how = f"process {process.id} was started and has ended at once: {process.end_reason}"
            return Output.say(f"{how}{text}", ok=process.exit_code == 0)
        how = f"started as process {process.id}, pid {process.pid}; follow it with the process tool"
        return Output.say(f"{how}{text}")


def shortened(command: str) -> str:
    """A command on one line of a list."""
    line = " ".join(command.split())
    return line if len(line) <= COMMAND_CHARS else f"{line[:COMMAND_CHARS]}…"
