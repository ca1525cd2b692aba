"""A conversation of a client program with the server, which is killed between and during turns.

The client names no session by a header of ours. There must be one session in the list, with every message once, and the
model must get what the client has sent.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tests.api.serving import Server
from tests.crash.programs import wait_until
from tests.fakes.openai_server import HANG_ONCE

TOOL_CALL = 'use tool weather {"place": "Bonn"}'
WEATHER = "Rain in Bonn."
PRINT_WEATHER = "printf 'Rain in %s.' Bonn"
"""A command with this output, which it does not contain."""
MESSAGE = re.compile(r"message \d+")


class Program(Protocol):
    """A client with a conversation of its own. If `say` fails, its history is as before."""

    errors: tuple[type[Exception], ...]
    """What `say` raises if the server is gone."""
    tool_call: str
    """Makes the model call a tool of the client that results in `WEATHER`; empty if it has none."""

    def say(self, words: str) -> str:
        """Send the next message, run the client's tools if the model calls them, and return the reply."""
        ...

    def close(self) -> None: ...


class Talk:
    def __init__(self, server: Server, record: Path, program: Program) -> None:
        self._server = server
        self._record = record
        self._program = program
        self.said: list[str] = []

    def take(self, turns: int) -> None:
        """Talk: the server is killed before one turn and during the next, and one turn calls a tool of the client."""
        for n in range(turns):
            if n == turns // 2:
                self._server.kill()
                self._server.restart()
            if n == turns // 2 + 1:
                words = f"{HANG_ONCE}, message {n}"
                reply = self._say_while_killed(words)
            else:
                call = self._program.tool_call if n == 1 else ""
                words = f"{call}\nmessage {n}" if call else f"message {n}"
                reply = self._program.say(words)
            # Some clients add text of their own before the words.
            expected = (WEATHER,) if words.startswith("use tool") else ("You said: ", words)
            assert all(part in reply for part in expected), reply
            self.said.append(words)

    def _say_while_killed(self, words: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(self._program.say, words)
            wait_until(lambda: words in self._record.read_text(), "the message to reach the model")
            self._server.kill()
            self._server.restart()
            try:
                return going.result()
            except self._program.errors:
                return self._program.say(words)

    def check(self) -> None:
        with self._server.http() as http:
            found = http.get("/v1/sessions").json()["sessions"]
        assert [one["preview"] for one in found] == [found[0]["preview"]], "there is one session"
        asked = self._asked()
        numbers = [MESSAGE.search(text) for text in asked]
        assert [found[0] for found in numbers if found] == [f"message {n}" for n in range(len(self.said))], asked

    def _asked(self) -> list[str]:
        """The messages of the user in the newest request to the model that continues the conversation."""
        for line in reversed(self._record.read_text().splitlines()):
            messages = json.loads(line)["messages"]
            texts = [_text(one["content"]) for one in messages if one["role"] == "user"]
            if texts[-1].startswith(self.said[-1]) or texts[-1].endswith(self.said[-1]):
                return texts
        raise AssertionError("the last message did not reach the model")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
