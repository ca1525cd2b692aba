"""What no editor should send, and editors that leave at the wrong moment."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import errors
from tests.acp.editor import LIMIT, Editor, editing

pytestmark = pytest.mark.process


class RawEditor:
    """Sends lines as they are."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, line: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        await self.process.stdin.drain()

    async def answer(self, request_id: object) -> dict[str, Any]:
        """The response to a request; updates are skipped."""
        return await self._next(lambda message: "method" not in message and message.get("id") == request_id)

    async def request(self, method: str) -> dict[str, Any]:
        """The next request of the agent with this method; everything before it is skipped."""
        return await self._next(lambda message: message.get("method") == method)

    async def update(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next update that is wanted; everything before it is skipped."""
        found = await self._next(
            lambda message: message.get("method") == "session/update" and wanted(message["params"]["update"])
        )
        return dict(found["params"]["update"])

    async def _next(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self.process.stdout is not None
        while True:
            async with asyncio.timeout(30):
                message = json.loads(await self.process.stdout.readline())
            if wanted(message):
                return dict(message)

    async def call(self, request_id: object, method: object, **params: Any) -> dict[str, Any]:
        await self.send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return await self.answer(request_id)


@asynccontextmanager
async def raw(home: Path, **options: Any) -> AsyncIterator[RawEditor]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--home", str(home), "acp"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LIMIT,
        **options,
    )
    editor = RawEditor(process)
    await editor.call(0, "initialize", protocolVersion=1)
    yield editor
    assert process.stdin is not None
    process.stdin.close()
    async with asyncio.timeout(30):
        assert await process.wait() == 0


NO_MESSAGES = [
    (b"{", -32700, None),
    (b"\xff\xfe", -32700, None),
    (b"[" * 100_000, -32700, None),
    (b"[]", -32600, None),
    (b"5", -32600, None),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "initialize"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 5, "method": ["x"]}', -32600, 5),
    (b'{"jsonrpc": "2.0", "id": "six", "method": "initialize", "params": [1]}', -32600, "six"),
    (b'{"jsonrpc": "2.0", "id": 5, "error": "no"}', -32600, None),
    (b"{}", -32600, None),
]


async def test_a_line_that_is_no_message_is_refused_and_the_next_one_works(home: Path) -> None:
    async with raw(home) as editor:
        for line, code, request_id in NO_MESSAGES:
            await editor.send(line)

            assert (await editor.answer(request_id))["error"]["code"] == code, line[:100]
            assert "result" in await editor.call(1, "session/list")


async def test_a_line_that_is_too_long_is_refused(home: Path) -> None:
    with (home / "config.toml").open("a") as file:
        file.write("[api]\nmax_body_mb = 1\n")
    async with raw(home) as editor:
        await editor.send(b'{"x": "' + b"x" * 2_000_000 + b'"}')

        assert "exceeds" in (await editor.answer(None))["error"]["message"]
        assert "result" in await editor.call(1, "session/list")


async def test_unknown_methods_sessions_and_parameters_are_errors(home: Path, folder: Path) -> None:
    async with raw(home) as editor:
        answers = [
            await editor.call(1, "session/nosuch"),
            await editor.call(2, "_other/extension"),
            await editor.call(3, "session/prompt", sessionId="hf-unknown", prompt=[{"type": "text", "text": "x"}]),
            await editor.call(4, "session/load", sessionId="hf-unknown", cwd=str(folder), mcpServers=[]),
            await editor.call(5, "session/new", cwd="relative", mcpServers=[]),
            await editor.call(6, "session/new", mcpServers=[]),
            await editor.call(7, "authenticate", methodId="x"),
            await editor.call(8, "session/set_mode", sessionId="hf-unknown", modeId="x"),
            await editor.call("nine", "session/close", sessionId="hf-unknown"),
            await editor.call(10, "session/new", cwd="/a\ud800", mcpServers=[]),
        ]
        await editor.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "hf-unknown"}})
        await editor.send({"jsonrpc": "2.0", "method": "nosuch", "params": {}})
        await editor.send({"jsonrpc": "2.0", "id": 77, "result": {}})

        codes = [answer["error"]["code"] for answer in answers]
        assert codes == [-32601, -32601, -32002, -32002, -32602, -32602, -32602, -32002, -32002, -32602]
        assert "result" in await editor.call(11, "session/list")


async def test_no_update_comes_before_the_editor_knows_the_session(home: Path, folder: Path) -> None:
    async with raw(home) as editor:
        await editor.send(
            {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": str(folder), "mcpServers": []}}
        )
        assert editor.process.stdout is not None
        response, update = [json.loads(await editor.process.stdout.readline()) for _ in range(2)]

    assert response["id"] == 1
    assert update["params"]["sessionId"] == response["result"]["sessionId"]
    assert update["params"]["update"]["sessionUpdate"] == "available_commands_update"


NO_PROMPTS = [
    [],
    [{"type": "text", "text": "  "}],
    [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}],
    [{"type": "image", "data": "not base64!", "mimeType": "image/png"}],
    [{"type": "image", "data": "AAAA", "mimeType": "image/tiff"}],
    [{"type": "nosuch"}],
    "text",
]


async def test_a_prompt_that_cannot_be_sent_is_refused_and_leaves_no_turn(home: Path, folder: Path) -> None:
    async with raw(home) as editor:
        session = (await editor.call(1, "session/new", cwd=str(folder), mcpServers=[]))["result"]["sessionId"]
        for prompt in NO_PROMPTS:
            refused = await editor.call(2, "session/prompt", sessionId=session, prompt=prompt)
            good = await editor.call(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Hello"}])

            assert refused["error"]["code"] == -32602, prompt
            assert good["result"]["stopReason"] == "end_turn"


async def test_two_prompts_at_once_are_two_turns_in_order(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(editor.say(session, 'use tool terminal {"command": "echo 1"}'))
            second = group.create_task(editor.say(session, "second"))

        assert (first.result(), second.result()) == ("end_turn", "end_turn")
        assert editor.text(session).index("done: terminal") < editor.text(session).index("You said: second")


async def test_cancelling_ends_the_running_and_the_queued_prompt(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        running = asyncio.create_task(editor.say(session, 'use tool terminal {"command": "sleep 100"}'))
        await editor.wait_for(lambda: any(update.get("status") == "in_progress" for _, update in editor.updates))
        queued = asyncio.create_task(editor.say(session, "later"))
        await editor.wait_for_queued(home, session)
        await editor.connection.cancel(session_id=session)

        assert (await running, await queued) == ("cancelled", "cancelled")
        assert await editor.say(session, "now") == "end_turn"


def is_running(editor: Editor, *, calls: int = 1) -> bool:
    return sum(update.get("status") == "in_progress" for _, update in editor.updates) >= calls


async def test_opening_a_session_again_leaves_its_prompts_waiting_and_closing_it_answers_them(
    home: Path, folder: Path
) -> None:
    os.mkfifo(folder / "gate")
    async with editing(home) as editor:
        session = await editor.new(folder)
        first = asyncio.create_task(editor.say(session, 'use tool terminal {"command": "cat gate"}'))
        await editor.wait_for(lambda: is_running(editor))
        await asyncio.gather(*(editor.load(folder, session) for _ in range(3)))
        updates = len(editor.updates)
        await asyncio.to_thread((folder / "gate").write_text, "open")
        assert await first == "end_turn"
        answers = [update for _, update in editor.updates[updates:] if update.get("rawOutput")]
        assert len(answers) == 1, "the session is followed once"

        second = asyncio.create_task(editor.say(session, 'use tool terminal {"command": "cat gate"}'))
        await editor.wait_for(lambda: len(editor.updates) > updates and is_running(editor, calls=5))
        await editor.connection.close_session(session_id=session)
        assert await second == "cancelled"


async def test_a_turn_goes_on_when_the_editor_leaves_in_the_middle_of_it(home: Path, folder: Path) -> None:
    async with editing(home) as editor:
        session = await editor.new(folder)
        turn = asyncio.create_task(editor.say(session, 'use tool terminal {"command": "sleep 1; echo late > late"}'))
        await editor.wait_for(lambda: any(update.get("status") == "in_progress" for _, update in editor.updates))
    turn.cancel()
    async with editing(home) as other:
        await other.load(folder, session)

    assert (folder / "late").read_text() == "late\n"
    assert "done: terminal" in other.text(session)


async def test_a_session_open_in_two_places_shows_both_conversations_in_both(home: Path, folder: Path) -> None:
    async with editing(home) as one, editing(home) as two:
        session = await one.new(folder)
        await two.load(folder, session)
        await one.say(session, "from one")
        await two.wait_for(lambda: "You said: from one" in two.text(session))
        await two.say(session, "from two")
        await one.wait_for(lambda: "You said: from two" in one.text(session))
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "--home",
            str(home),
            "run",
            "--session",
            session,
            "from the terminal",
        ]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        await one.wait_for(lambda: "You said: from the terminal" in one.text(session))

        assert one.text(session, "user_message_chunk") == "from twofrom the terminal"
        assert two.text(session, "user_message_chunk").startswith("from one")


async def test_nothing_but_the_protocol_is_written_to_standard_output(home: Path, folder: Path) -> None:
    async with raw(home, env={"PATH": "/usr/bin:/bin", "HOLDFAST_LOG": "debug", "HOME": str(home)}) as editor:
        session = (await editor.call(1, "session/new", cwd=str(folder), mcpServers=[]))["result"]["sessionId"]
        text = 'use tool terminal {"command": "echo stray; echo stray >&2; cat"}'
        done = await editor.call(2, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    assert done["result"]["stopReason"] == "end_turn"


def test_without_pipes_the_command_explains_itself(home: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "--home", str(home), "acp"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ran.returncode in (errors.USAGE, errors.FAILED)
    assert "an editor starts this command" in ran.stderr


async def test_malformed_answers_of_an_editor_leave_the_question_open_and_the_disk_as_the_truth(
    home: Path, folder: Path
) -> None:
    (folder / "a.txt").write_text("on disk\n")
    async with raw(home) as editor:
        files = {"readTextFile": True, "writeTextFile": False}
        await editor.call(1, "initialize", protocolVersion=1, clientCapabilities={"fs": files})
        session = (await editor.call(2, "session/new", cwd=str(folder), mcpServers=[]))["result"]["sessionId"]

        async def ask(text: str) -> None:
            prompt = [{"type": "text", "text": text}]
            params = {"sessionId": session, "prompt": prompt}
            await editor.send({"jsonrpc": "2.0", "id": text, "method": "session/prompt", "params": params})

        await ask('use tool read_file {"path": "a.txt"}')
        request = await editor.request("fs/read_text_file")
        await editor.send({"jsonrpc": "2.0", "id": request["id"], "result": {"content": 5}})
        ended = await editor.update(lambda update: "rawOutput" in update)
        assert (ended["status"], "on disk" in ended["rawOutput"]["text"]) == ("completed", True)
        await editor.answer('use tool read_file {"path": "a.txt"}')

        await ask('use tool terminal {"command": "rm -rf build"}')
        request = await editor.request("session/request_permission")
        await editor.send({"jsonrpc": "2.0", "id": request["id"], "result": {"outcome": "selected"}})
        load = {"sessionId": session, "cwd": str(folder), "mcpServers": []}
        await editor.send({"jsonrpc": "2.0", "id": 3, "method": "session/load", "params": load})
        assert await editor.request("session/request_permission"), "it is asked again, before or after the response"
