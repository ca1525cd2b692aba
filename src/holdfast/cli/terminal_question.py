"""Approval questions on a plain terminal, for commands without a full-screen interface."""

import asyncio
import os
import sys
import termios
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from holdfast.cli import context
from holdfast.engine.engine import Engine
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.answer import Answer
from holdfast.model.entry import Entry
from holdfast.model.event import ApprovalAsked

if TYPE_CHECKING:
    from holdfast.cli.chat.prompts import TerminalPrompt

LINE_BYTES = 4096
"""The longest line that a terminal delivers."""


def can_ask() -> bool:
    """Whether a terminal can show a question and read its answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def ask_during(
    engine: Engine, session_id: str, items: AsyncIterator[Entry | LiveText]
) -> AsyncIterator[Entry | LiveText]:
    """Pass the items through, and ask the user at each approval question."""
    async for item in items:
        yield item
        if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked):
            await _ask(engine, session_id)


async def _ask(engine: Engine, session_id: str) -> None:
    """Ask until there is an answer, here or from elsewhere."""
    from holdfast.cli.chat.prompts import next_question  # loads the chat's terminal library
    from holdfast.cli.chat.session_state import load_state

    asked = None
    while True:
        state = await engine.services.database.read(load_state, session_id)
        prompt = next_question(state, engine.services.worker_id, is_offered=False)
        if prompt is None or (asked is not None and prompt.id != asked):
            return
        if asked is None:
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # text typed before the question is not its answer
            sys.stderr.write(prompt.details)
        asked = prompt.id
        notice = await prompt.submit(engine, await _read_answer(prompt))
        if not notice:
            return
        context.note(notice)


async def _read_answer(prompt: "TerminalPrompt") -> Answer:
    from holdfast.cli.chat.prompts import SHOW_ALL

    while True:
        sys.stderr.write(f"{prompt.text} ")
        sys.stderr.flush()
        line = await _read_line(sys.stdin.fileno())
        if not line:  # Ctrl-D
            return Answer(allowed=False)
        typed = line.decode("utf-8", "replace").strip()
        if typed.lower() in SHOW_ALL:
            sys.stderr.write(prompt.all_details)
        elif (answer := prompt.parse(typed)) is not None:
            return answer


async def _read_line(descriptor: int) -> bytes:
    """Read a line from the terminal. Cancelling it leaves no reader behind."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
        return os.read(descriptor, LINE_BYTES)
    finally:
        loop.remove_reader(descriptor)
