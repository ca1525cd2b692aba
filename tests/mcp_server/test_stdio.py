"""`holdfast mcp` as a child of its client: the official client, and a client that is killed or sends nonsense."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import config
from holdfast.model.session import messages
from holdfast.store.repos import log, session_list
from holdfast.wiring.store import open_app
from tests.api.serving import BRISKLY, SLOWLY, write_config
from tests.crash.programs import Process
from tests.mcp_server.conftest import command, open_stdio

# The library alone takes a second to import, in every server that is started.
pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


class RawClient(Process):
    """A client that writes its own lines."""

    def __init__(self, home: Path) -> None:
        super().__init__(*command(home))
        self._number = 0

    def start(self) -> None:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        assert self.ask("initialize", about)["serverInfo"]["name"] == "holdfast"
        self.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}))
        self.wait_for_output(f'"id":{self._number},')
        return next(one for one in self.answers() if one.get("id") == self._number)["result"]

    def call(self, name: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": name, "arguments": arguments})["structuredContent"]

    def close_input(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def answers(self) -> list[Any]:
        complete = self.stdout.rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    def errors(self) -> list[tuple[int, str]]:
        found = [one["error"] for one in self.answers() if "error" in one]
        return [(one["code"], one["data"]["code"]) for one in found]


async def transcript(home: Path) -> list[str]:
    """The texts of the only session, read from the store."""
    async with open_app(config.load(home)) as app:
        page = await app.database.read(session_list.list_page, session_list.EVERYTHING, limit=10)
        [session] = page.sessions
        return [one.text for one in messages(await app.database.read(log.read_complete, session))]


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.soak)])
async def test_the_official_client_uses_sessions_over_standard_input_and_output(home: Path, mode: str) -> None:
    async with open_stdio(home, mode) as mcp:
        session = await mcp.open(key="notes")
        first = await mcp.say(session, "Hello", idempotency_key="a")
    async with open_stdio(home, mode) as mcp:
        again = await mcp.call("send_message", session=session, text="Hello", idempotency_key="a")
        second = await mcp.say(session, "Bye")

    assert (first["text"], second["text"]) == ("You said: Hello", "You said: Bye")
    assert (again["turn_id"], again["state"]) == (first["turn_id"], "repeated")
    assert await transcript(home) == ["Hello", "You said: Hello", "Bye", "You said: Bye"]


async def test_a_call_that_waits_does_not_block_other_calls(home: Path) -> None:
    async with open_stdio(home) as mcp:
        session = await mcp.open(model=f"scripted:{home}/silent.json")
        sent = await mcp.call("send_message", session=session, text="Hello?")
        following = asyncio.ensure_future(mcp.call("follow_turn", session=session, turn_id=sent["turn_id"]))
        other = await mcp.say(await mcp.open(), "Hi")
        is_waiting = not following.done()
        following.cancel()

    assert (other["text"], is_waiting) == ("You said: Hi", True)


async def test_a_turn_ends_although_its_client_was_killed(home: Path) -> None:
    with RawClient(home) as client:
        client.start()
        session = client.call("open_session", model=f"scripted:{home}/slow.json")["session"]["id"]
        sent = client.call("send_message", session=session, text="Tell me", idempotency_key="a")
        client.close_input()
        status = client.wait()

    assert sent["state"] == "running"
    assert status == 0
    assert await transcript(home) == ["Tell me", SLOWLY]


@pytest.mark.crash
async def test_a_turn_whose_server_was_killed_is_recovered_and_its_message_is_not_doubled(home: Path) -> None:
    with RawClient(home) as client:
        client.start()
        session = client.call("open_session", model=f"scripted:{home}/slow.json")["session"]["id"]
        client.call("send_message", session=session, text="Tell me", idempotency_key="a")
        client.kill()
    async with open_stdio(home) as mcp:
        again = await mcp.call("send_message", session=session, text="Tell me", idempotency_key="a")
        done = await mcp.call("follow_turn", session=session, turn_id=again["turn_id"])

    assert again["state"] == "repeated"
    assert (done["state"], done["text"]) == ("done", SLOWLY)
    assert [one for one in await transcript(home) if one == "Tell me"] == ["Tell me"]


async def test_a_signal_ends_the_server_after_the_current_step(home: Path) -> None:
    with RawClient(home) as client:
        client.start()
        session = client.call("open_session", model=f"scripted:{home}/brisk.json")["session"]["id"]
        client.call("send_message", session=session, text="Tell me")
        client.signal(signal.SIGTERM)
        status = client.wait()

    assert status == 0
    assert await transcript(home) == ["Tell me", BRISKLY]


def test_lines_that_are_no_messages_are_refused_by_name_and_the_next_ones_are_served(tmp_path: Path) -> None:
    write_config(tmp_path / "home", max_body_mb=1)
    with RawClient(tmp_path / "home") as client:
        client.send("hello")
        client.start()
        for line in ('{"jsonrpc":"2.0","id":', "[]", "[1]", "null", "", '{"jsonrpc":"1.0","id":5,"method":"ping"}'):
            client.send(line)
        client.send('{"jsonrpc":"2.0","id":6,"method":"ping","params":"' + "x" * 2**20 + '"}')
        opened = client.call("open_session", title="Still here")

    assert opened["session"]["title"] == "Still here"
    parse, refused = (-32700, "invalid_json"), (-32600, "invalid_request")
    expected = [parse, parse, refused, refused, refused, refused, (-32600, "request_too_large")]
    assert client.errors() == expected
    assert client.stderr == ""


def test_only_messages_reach_the_client_and_tools_cannot_read_its_input(home: Path) -> None:
    with RawClient(home) as client:
        client.start()
        session = client.call("open_session", model="scripted:tools")["session"]["id"]
        command_line = json.dumps({"command": "cat; echo stray; echo stray >&2"})
        sent = client.call("send_message", session=session, text=f"Go\nuse tool terminal {command_line}")
        done = client.call("follow_turn", session=session, turn_id=sent["turn_id"])
        answers = client.answers()

    assert done["state"] == "done"
    assert all(one["jsonrpc"] == "2.0" for one in answers)


def test_it_must_be_started_by_a_client(home: Path) -> None:
    done = subprocess.run(command(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "standard input is not a pipe" in done.stderr


def test_other_commands_do_not_load_the_library(home: Path) -> None:
    program = (
        "import sys, holdfast.cli.mcp, holdfast.wiring.mcp_server, holdfast.wiring.server;"
        "sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
