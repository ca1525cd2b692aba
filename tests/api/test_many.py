"""A thousand sessions at once in `make soak`, two hundred in `make test`: no error, and no client gets another's reply."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.api.serving import KEY, Server, events, told
from tests.sampling import SOAK

SESSIONS = 1000 if SOAK else 200
WORDS = ("first", "second")


class Client:
    """One persistent connection. A full HTTP client would use most of the CPU time of this test."""

    def __init__(self, server: Server) -> None:
        self._port = server.port

    async def __aenter__(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self, method: str, path: str, body: Any = None, *headers: str) -> tuple[dict[str, str], Any]:
        """The headers and the document of a successful response."""
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {KEY}", *headers]
        self._writer.write("\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode() + content)
        first, *rest = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        found = dict(line.split(": ", 1) for line in rest if line)
        answer = await self._content(found)
        assert first.split()[1] == "200", answer
        return found, answer if "content-length" not in found else json.loads(answer)

    async def _content(self, headers: dict[str, str]) -> str:
        if "content-length" in headers:
            return (await self._reader.readexactly(int(headers["content-length"]))).decode()
        pieces = b""
        while size := int(await self._reader.readline(), 16):
            pieces += await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()
        return pieces.decode()


@pytest.mark.timeout(300)
async def test_many_concurrent_sessions_stay_separate(own: Server) -> None:
    """Every other client names its session, the others send their history; half of each have their replies streamed."""
    everybody = asyncio.Barrier(SESSIONS)

    found = await asyncio.gather(*(_run_client(own, number, everybody) for number in range(SESSIONS)))

    assert len({session_id for session_id, _ in found}) == SESSIONS
    for number, (_, kept) in enumerate(found):
        said = [f"{word} of {number}" for word in WORDS]
        assert kept == [text for words in said for text in (words, f"You said: {words}")]
    own.stop()
    command = [sys.executable, "-m", "holdfast", "--home", str(own.home), "sessions", "verify", "--json"]
    verified = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert verified["sessions"] == SESSIONS, verified


async def _run_client(server: Server, number: int, everybody: asyncio.Barrier) -> tuple[str, list[str]]:
    """Run some turns of one client in step with the others; return the id of its session and what is stored of it."""
    named, streamed = number % 2 == 0, number % 4 < 2
    name = [f"x-session-key: many-{number}"] if named else []
    history: list[dict[str, str]] = []
    ids = set()
    async with Client(server) as client:
        for word in WORDS:
            await everybody.wait()
            said = {"role": "user", "content": f"{word} of {number}"}
            body = {"model": "holdfast", "stream": streamed, "messages": [*history, said]}
            headers, answer = await client.ask("POST", "/v1/chat/completions", body, *name)
            reply = told(events(answer)) if streamed else answer["choices"][0]["message"]["content"]
            assert reply == f"You said: {word} of {number}"
            history += [] if named else [said, {"role": "assistant", "content": reply}]
            ids.add(headers["x-session-id"])
        [only] = ids
        _, kept = await client.ask("GET", f"/v1/sessions/{only}/messages")
    return only, [message["content"] for message in kept["messages"]]
