"""Session layers of agent frameworks, ours and their own, with one interface: append an item, fill a session, load it."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from sqlite3 import OperationalError
from typing import Any, Protocol

import msgspec

from bench import texts


class FrameworkLayer(Protocol):
    async def append(self, session: str, number: int) -> None: ...
    async def fill(self, session: str, count: int) -> None: ...
    async def load(self, session: str) -> int: ...


class Framework(msgspec.Struct, frozen=True):
    """A framework with the layers to compare, by name, ours first, and the files in which they keep their data."""

    name: str
    layers: dict[str, FrameworkLayer]
    files: list[Path]
    appends: int = 1
    """The share of the usual number of appends: one of so many."""
    bytes_goal: float = 1.5
    has_goals: bool = True
    """False if the other layer keeps less than a session, and is measured for comparison only."""
    steps: int = 0
    """Appends before the bytes are measured; without them, they are measured after the long session is filled."""


class OpenAiLayer:
    """openai-agents."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._sessions: dict[str, Any] = {}

    def _get(self, session: str) -> Any:
        if session not in self._sessions:
            self._sessions[session] = self._make(session)
        return self._sessions[session]

    async def append(self, session: str, number: int) -> None:
        await self._get(session).add_items([self._item(number)])

    async def fill(self, session: str, count: int) -> None:
        await self._get(session).add_items([self._item(number) for number in range(count)])

    async def load(self, session: str) -> int:
        return len(await self._get(session).get_items())

    @staticmethod
    def _item(number: int) -> Any:
        return {"role": "assistant", "content": texts.text(number)}


class AdkLayer:
    """Google ADK."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self._sessions: dict[str, Any] = {}

    async def _get(self, session: str) -> Any:
        if session not in self._sessions:
            self._sessions[session] = await self._service.create_session(
                app_name="bench", user_id="bench", session_id=session
            )
        return self._sessions[session]

    async def append(self, session: str, number: int) -> None:
        from google.adk.events import Event
        from google.genai import types

        content = types.Content(role="model", parts=[types.Part(text=texts.text(number))])
        while True:
            try:
                await self._service.append_event(await self._get(session), Event(author="agent", content=content))
            except OperationalError:  # ADK's service: "database is locked", after five seconds
                continue
            return

    async def fill(self, session: str, count: int) -> None:
        for number in range(count):
            await self.append(session, number)

    async def load(self, session: str) -> int:
        found = await self._service.get_session(app_name="bench", user_id="bench", session_id=session)
        return len(found.events)


class LangGraphLayer:
    """One checkpoint for each message of a growing list, as a graph of messages writes them."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._threads: dict[str, tuple[list[Any], Any]] = {}

    async def append(self, session: str, number: int) -> None:
        from langchain_core.messages import AIMessage

        messages, _ = self._threads.get(session, ([], None))
        await self._put(session, [*messages, AIMessage(texts.text(number), id=str(len(messages)))])

    async def fill(self, session: str, count: int) -> None:
        from langchain_core.messages import AIMessage

        await self._put(session, [AIMessage(texts.text(number), id=str(number)) for number in range(count)])

    async def load(self, session: str) -> int:
        found = await self._saver.aget_tuple({"configurable": {"thread_id": session, "checkpoint_ns": ""}})
        return len(found.checkpoint["channel_values"]["messages"])

    async def _put(self, session: str, messages: list[Any]) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        _, config = self._threads.get(session, ([], {"configurable": {"thread_id": session, "checkpoint_ns": ""}}))
        version = f"{len(messages):032}"
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": version}
        config = await self._saver.aput(config, checkpoint, {"step": len(messages)}, {"messages": version})
        self._threads[session] = (messages, config)


class ClaudeLayer:
    """Claude Agent SDK."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def append(self, session: str, number: int) -> None:
        await self._store.append(_key(session), [self._entry(number)])

    async def fill(self, session: str, count: int) -> None:
        await self._store.append(_key(session), [self._entry(number) for number in range(count)])

    async def load(self, session: str) -> int:
        return len(await self._store.load(_key(session)))

    @staticmethod
    def _entry(number: int) -> Any:
        message = {"role": "assistant", "content": texts.text(number)}
        return {"type": "assistant", "uuid": os.urandom(16).hex(), "message": message}


class TranscriptFile:
    """What Claude Code does, made durable: each entry is a line of a file, which is synchronized after each append.

    The SDK has no store of its own that keeps anything.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    async def append(self, key: Any, entries: list[Any]) -> None:
        await asyncio.to_thread(self._append, key, entries)

    async def load(self, key: Any) -> list[Any]:
        return [msgspec.json.decode(line) for line in self._path(key).read_bytes().splitlines()]

    def _append(self, key: Any, entries: list[Any]) -> None:
        with self._path(key).open("ab") as file:
            file.write(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
            file.flush()
            os.fsync(file.fileno())

    def _path(self, key: Any) -> Path:
        return self._folder / f"{key['session_id']}.jsonl"


def _key(session: str) -> Any:
    return {"project_key": "bench", "session_id": session}
