"""One session in the chat of a terminal and in an editor at once."""

import asyncio
from pathlib import Path

import pytest

from tests.acp.editor import editing
from tests.cli.terminal import Terminal

pytestmark = pytest.mark.process


async def test_each_shows_the_turns_of_the_other(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.say(session, "from the editor")
        with Terminal(home, "chat", "--resume", session, model="scripted:tools") as chat:
            await asyncio.to_thread(chat.see, "You said: from the editor")
            chat.say("from the chat")
            await editor.wait_for(lambda: "You said: from the chat" in editor.text(session))
            await editor.say(session, "once more")
            await asyncio.to_thread(chat.see, "You said: once more")
            await asyncio.to_thread(chat.leave)

    assert editor.text(session, "user_message_chunk") == "from the chat"
