"""An editor for tests, on the client side of the official package: it starts the agent and records what it is shown."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TextContentBlock,
)

from holdfast.store.repos import input_queue
from holdfast.store.sqlite.driver import open_sqlite

LIMIT = 50 * 2**20
MESSAGES = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")


@dataclass
class Question:
    """A permission request as it arrived."""

    session_id: str
    call: Any
    options: list[Any]
    answer: "asyncio.Future[str | None]"
    """The id of the chosen option; None for a cancelled request."""


@dataclass
class Editor:
    """The client: records updates, answers questions with `choose`, and has unsaved files in `buffers`."""

    connection: ClientSideConnection = field(init=False)
    process: asyncio.subprocess.Process = field(init=False)
    updates: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: "asyncio.Queue[Question]" = field(default_factory=asyncio.Queue)
    choose: Callable[[Question], str | None] | None = None
    buffers: dict[str, str] = field(default_factory=dict)
    written: list[tuple[str, str]] = field(default_factory=list)
    on_update: Callable[[dict[str, Any]], None] = lambda update: None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        plain = update.model_dump(by_alias=True, exclude_none=True)
        self.updates.append((session_id, plain))
        self.on_update(plain)
        self.arrived.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any
    ) -> RequestPermissionResponse:
        question = Question(session_id, tool_call, options, asyncio.get_running_loop().create_future())
        if self.choose is not None:
            question.answer.set_result(self.choose(question))
        self.asked.put_nowait(question)
        chosen = await question.answer
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def read_text_file(self, path: str, session_id: str, **kwargs: Any) -> ReadTextFileResponse:
        return ReadTextFileResponse(content=self.buffers[path] if path in self.buffers else Path(path).read_text())

    async def write_text_file(self, content: str, path: str, session_id: str, **kwargs: Any) -> None:
        self.written.append((path, content))
        self.buffers.pop(path, None)
        Path(path).write_text(content)

    def on_connect(self, conn: Any) -> None:
        """Nothing to do."""

    # what the tests look at

    def shown(self, session_id: str) -> list[dict[str, Any]]:
        """What was shown of a session, with the chunks of each message joined."""
        return joined([update for name, update in self.updates if name == session_id])

    def text(self, session_id: str, kind: str = "agent_message_chunk") -> str:
        return "".join(
            update["content"].get("text", "")
            for name, update in self.updates
            if (name, update["sessionUpdate"]) == (session_id, kind)
        )

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a state that the next updates bring about."""
        while not condition():
            self.arrived.clear()
            async with asyncio.timeout(30):
                await self.arrived.wait()

    async def wait_for_queued(self, home: Path, session_id: str) -> None:
        """Wait until a prompt is in the queue of the session."""
        database = await open_sqlite(home / "holdfast.db")
        try:
            async with asyncio.timeout(30), aclosing(database.listen(session_id)) as changes:
                async for _ in changes:
                    if await database.read(input_queue.list_waiting, session_id):
                        return
        finally:
            await database.close()

    async def say(self, session_id: str, text: str) -> str:
        """Send a prompt; returns the stop reason."""
        response = await self.connection.prompt(
            session_id=session_id, prompt=[TextContentBlock(type="text", text=text)]
        )
        return str(response.stop_reason)

    async def new(self, folder: Path, **options: Any) -> str:
        return str((await self.connection.new_session(cwd=str(folder), mcp_servers=[], **options)).session_id)

    async def load(self, folder: Path, session_id: str) -> None:
        await self.connection.load_session(cwd=str(folder), session_id=session_id, mcp_servers=[])


def joined(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The updates without figures, menus and the output of running calls, and with consecutive chunks of a message in one."""
    found: list[dict[str, Any]] = []
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in (
            "usage_update",
            "available_commands_update",
            "session_info_update",
            "config_option_update",
            "current_mode_update",
        ):
            continue
        if update.get("status") == "in_progress" and update.get("content"):
            continue
        is_text = kind in MESSAGES and update["content"]["type"] == "text"
        if is_text and found and found[-1]["sessionUpdate"] == kind and found[-1]["content"]["type"] == "text":
            text = found[-1]["content"]["text"] + update["content"]["text"]
            found[-1] = {**update, "content": {"type": "text", "text": text}}
        else:
            found.append(update)
    return found


@asynccontextmanager
async def editing(home: Path, *, fs: bool = False, wait: bool = True, **fields: Any) -> AsyncIterator[Editor]:
    """An editor whose agent runs. At the end it closes the agent's input; with `wait`, the agent must end by itself."""
    editor = Editor(**fields)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    with (home.parent / "agent-stderr").open("ab") as errors:
        editor.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "--home", str(home), "acp"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
            limit=LIMIT,
        )
    assert editor.process.stdin is not None and editor.process.stdout is not None
    editor.connection = ClientSideConnection(
        editor, editor.process.stdin, editor.process.stdout, use_unstable_protocol=True
    )  # type: ignore[arg-type] # methods are found by name
    try:
        files = FileSystemCapabilities(read_text_file=fs, write_text_file=fs)
        await editor.connection.initialize(protocol_version=1, client_capabilities=ClientCapabilities(fs=files))
        yield editor
    finally:
        if wait and editor.process.returncode is None:
            editor.process.stdin.close()
            async with asyncio.timeout(30):
                await editor.process.wait()
        elif editor.process.returncode is None:
            editor.process.kill()
            await editor.process.wait()
        await editor.connection.close()
