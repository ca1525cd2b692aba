import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from holdfast.model.message import Image, text_of
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.servers import McpServers
from holdfast.tools.mcp.tools import tool_name
from holdfast.tools.toolbox import Toolbox

# The library alone takes a second to import, in every server that is started.
pytestmark = [pytest.mark.timeout(240), pytest.mark.process]

PROGRAM = str(Path(__file__).parents[2] / "fakes" / "mcp_server.py")


def said(output):
    return text_of(output.parts)


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


class ServerRecord:
    """The calls that the server recorded."""

    def __init__(self, folder):
        self.folder = folder

    def __getitem__(self, name):
        file = self.folder / name
        return file.read_text().split() if file.exists() else []

    def pid(self):
        return int(self["starts"][-1])


class Session:
    """Calls tools like the engine."""

    def __init__(self, servers, scene):
        self.toolbox = Toolbox(servers.tools())
        self.scene = scene

    async def call(self, name, **arguments):
        return await self.toolbox.get(f"mcp__fake__{name}").run(arguments, self.scene)


@pytest.fixture
def record(tmp_path):
    (tmp_path / "deeds").mkdir()
    return ServerRecord(tmp_path / "deeds")


@pytest.fixture
def child(record):
    """The server as a child process that uses its standard input and output."""
    return McpServer(name="fake", command=(sys.executable, PROGRAM, str(record.folder), "stdio"))


class Elsewhere:
    """The server behind a port, started and killed by the test."""

    def __init__(self, record, *era):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.command = [sys.executable, PROGRAM, str(record.folder), str(self.port), *era]
        self.sign_of_life = "ping" if era else "server/discover"
        self.config = McpServer(name="fake", url=f"http://127.0.0.1:{self.port}/mcp")
        self.process = None

    async def start(self):
        self.process = subprocess.Popen(self.command)
        await until(self.answers)

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(params=["new protocol", "old protocol"])
async def elsewhere(request, record):
    server = Elsewhere(record, *(["old"] if request.param == "old protocol" else []))
    await server.start()
    yield server
    server.kill()


async def test_the_tools_of_a_server_are_tools_of_the_session(child, record, scene, tmp_path):
    async with McpServers([child], logs=tmp_path / "logs") as servers:
        session = Session(servers, scene)
        tools = {tool.spec.name: tool for tool in servers.tools()}
        pid = record.pid()

        assert servers.problems == []
        assert list(tools) == sorted(tools)
        assert tools["mcp__fake__note"].spec.description == "Writes a note down."
        assert session.toolbox.parse("mcp__fake__note", '{"text": "x"}') == {"text": "x"}
        assert tools["mcp__fake__whoami"].repeatable
        assert not tools["mcp__fake__note"].repeatable
        assert not tools["mcp__fake__put"].repeatable, "idempotent is not the same as changing nothing"
        assert tools["mcp__fake__whoami"].risk({}, scene) == ()
        assert str(*tools["mcp__fake__note"].risk({}, scene)) == "note of MCP server fake may change external state"

        assert said(await session.call("whoami")) == str(pid)
        assert said(await session.call("note", text="hello")) == "noted"
        assert record["notes"] == ["hello"]

        failed = await session.call("fail")
        assert (failed.ok, "it does not work" in said(failed)) == (False, True)

        (picture,) = (await session.call("picture")).parts
        assert isinstance(picture, Image)
        assert picture.url.startswith("data:image/png;base64,iVBOR")

        long = await session.call("talk", characters=100_000)
        (file,) = scene.files.iterdir()
        assert str(file) in said(long)
        assert file.read_text() == "x" * 100_000
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

        (odd,) = (tool for name, tool in tools.items() if "odd_name" in name)
        assert len(odd.spec.name) <= 64
        assert said(await odd.run({}, scene)) == "odd"

    assert not is_running(pid), "the child ends with the session"


async def test_resources_and_prompts_can_be_listed_and_read(child, scene):
    async with McpServers([child]) as servers:
        session = Session(servers, scene)
        assert all(
            servers_tool.repeatable for servers_tool in servers.tools() if "read_resource" in servers_tool.spec.name
        )

        assert "note://first" in said(await session.call("read_resource"))
        assert said(await session.call("read_resource", uri="note://first")) == "buy milk"
        assert not (await session.call("read_resource", uri="note://other")).ok

        assert said(await session.call("get_prompt")) == "review(text): Reviews a text."
        assert said(await session.call("get_prompt", prompt="review", arguments='{"text": "x"}')) == "Please review: x"
        assert not (await session.call("get_prompt", prompt="review", arguments="no json")).ok


async def test_a_server_that_was_killed_in_between_is_started_again_and_nothing_is_done_twice(child, record, scene):
    async with McpServers([child]) as servers:
        session = Session(servers, scene)
        first = record.pid()
        os.kill(first, signal.SIGKILL)

        output = await session.call("note", text="once")

        assert said(output) == "noted"
        assert record["notes"] == ["once"]
        assert record.pid() != first


async def test_a_server_that_dies_during_a_call_leaves_an_unknown_outcome_and_is_started_again(child, record, scene):
    async with McpServers([child]) as servers:
        session = Session(servers, scene)

        output = await session.call("note_and_die", text="perhaps")

        assert not output.ok
        assert "The outcome is unknown" in said(output)
        assert record["notes"] == ["perhaps"], "and it was not called again"
        assert said(await session.call("note", text="later")) == "noted"


async def test_a_call_that_changes_nothing_or_may_be_repeated_is_retried(child, record, scene):
    async with McpServers([child]) as servers:
        session = Session(servers, scene)

        assert said(await session.call("look")) == "seen"
        assert said(await session.call("put", text="x")) == "put"
        assert len(record["looks"]) == 2
        assert record["puts"] == ["x", "x"]


async def test_a_call_has_a_time_limit_and_can_be_cancelled(child, record, scene):
    async with McpServers([child], call_seconds=1) as servers:
        session = Session(servers, scene)

        late = await session.call("slow", seconds=300)
        assert not late.ok
        assert "no answer within 1 s" in said(late)
        assert "The outcome is unknown" in said(late)
        await until(lambda: record["slow"] == ["begun", "cancelled"])

    async with McpServers([child]) as servers:
        session = Session(servers, scene)
        call = asyncio.ensure_future(session.call("slow", seconds=300))
        await until(lambda: len(record["slow"]) == 3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: record["slow"][3:] == ["cancelled"])

        assert said(await session.call("whoami")) == str(record.pid()), "the server keeps running"


async def test_an_idle_connection_is_kept_alive_and_a_dead_one_closed(child, record, scene):
    async with McpServers([child], ping_seconds=0.2) as servers:
        session = Session(servers, scene)
        await until(lambda: record["methods"].count("server/discover") > 3)

        assert said(await session.call("whoami")) == str(record.pid())
        assert len(record["starts"]) == 1

        os.kill(record.pid(), signal.SIGKILL)
        await asyncio.sleep(1)
        assert said(await session.call("note", text="x")) == "noted"
        assert len(record["starts"]) == 2


async def test_a_busy_server_does_not_count_as_dead(child, record, scene):
    async with McpServers([child], ping_seconds=0.1) as servers:
        session = Session(servers, scene)
        slow = asyncio.ensure_future(session.call("slow", seconds=1))
        await until(lambda: record["slow"])

        assert said(await session.call("note", text="meanwhile")) == "noted"
        assert said(await slow) == "done"


async def test_servers_that_do_not_start_are_reported_and_stop_no_other(child, record, scene, tmp_path):
    complains = "import sys; sys.stderr.write('no licence'); sys.exit(3)"
    broken = [
        McpServer(name="missing", command=("no-such-program",)),
        McpServer(name="dies", command=(sys.executable, "-c", complains)),
        McpServer(name="refuses", url="http://127.0.0.1:9/mcp"),
        McpServer(name="both", command=("x",), url="http://127.0.0.1:9/mcp"),
        McpServer(name="neither"),
    ]
    async with McpServers([*broken, child], logs=tmp_path / "logs") as servers:
        assert said(await Session(servers, scene).call("whoami")) == str(record.pid())
        names = {problem.split()[2] for problem in servers.problems}
        assert names == {server.name for server in broken}
        assert all(tool.spec.name.startswith("mcp__fake__") for tool in servers.tools())

    log = tmp_path / "logs" / "mcp-dies.log"
    assert log.read_text() == "no licence"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert any(str(log) in problem for problem in servers.problems)


async def test_a_silent_server_times_out():
    async with McpServers([McpServer(name="hangs", command=("sleep", "302"))], connect_seconds=1) as servers:
        assert servers.problems == ["MCP server hangs is not available: no answer within 1 s"]
        assert not [child for child in psutil.Process().children() if child.name() == "sleep"]


async def test_a_remote_server_can_be_restarted_at_any_time(elsewhere, record, scene):
    async with McpServers([elsewhere.config], ping_seconds=0.5) as servers:
        session = Session(servers, scene)
        assert said(await session.call("whoami")) == str(elsewhere.process.pid)
        await until(lambda: record["methods"].count(elsewhere.sign_of_life) > 3)

        elsewhere.kill()
        lost = await session.call("note", text="lost")
        assert not lost.ok
        assert "Nothing was sent" in said(lost)

        await elsewhere.start()
        assert said(await session.call("note", text="kept")) == "noted"
        assert record["notes"] == ["kept"]

        elsewhere.kill()
        await elsewhere.start()
        assert said(await session.call("note", text="again")) == "noted"
        assert said(await session.call("whoami")) == str(elsewhere.process.pid)
        assert record["notes"] == ["kept", "again"]

        perhaps = await session.call("note_and_die", text="perhaps")
        assert "The outcome is unknown" in said(perhaps)
        assert record["notes"] == ["kept", "again", "perhaps"]


async def test_a_remote_server_gets_the_configured_headers():
    heard = asyncio.get_running_loop().create_future()

    async def answer(reader, writer):
        request = await reader.readuntil(b"\r\n\r\n")
        if not heard.done():
            heard.set_result(request.decode().lower())
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = McpServer(name="guarded", url=f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "Bearer x"})
        async with McpServers([config]) as servers:
            assert len(servers.problems) == 1

        assert "authorization: bearer x\r\n" in await heard


async def test_a_cancelled_start_leaves_no_child(record):
    async def start():
        async with McpServers([McpServer(name="hangs", command=("sleep", "301"))]):
            pass

    starting = asyncio.ensure_future(start())
    await until(lambda: any(child.name() == "sleep" for child in psutil.Process().children()))
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting

    assert starting.cancelled()
    assert not [child for child in psutil.Process().children() if child.name() == "sleep" and is_running(child.pid)]


def test_a_missing_library_is_reported_without_a_crash():
    program = (
        "import asyncio, sys\n"
        "sys.modules['mcp'] = None\n"
        "from holdfast.tools.mcp.server import McpServer\n"
        "from holdfast.tools.mcp.servers import McpServers\n"
        "async def main():\n"
        "    async with McpServers([McpServer(name='x', command=('true',))]) as servers:\n"
        "        print(servers.problems, servers.tools())\n"
        "asyncio.run(main())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "pip install" in ended.stdout


def test_the_library_is_imported_only_when_a_server_is_configured():
    program = "import sys, holdfast.tools.mcp.servers, holdfast.tools.builtin; print('mcp' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout == "False\n"


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [("git", "log", "mcp__git__log"), ("my server", "a.b/c", "mcp__my_server__a_b_c"), ("é", "☃", "mcp_____")],
)
def test_names_contain_only_characters_that_all_providers_accept(server, tool, name):
    assert tool_name(server, tool).startswith(name)


def test_names_that_are_too_long_or_taken_get_a_suffix():
    long, other = tool_name("s", "x" * 100), tool_name("s", "x" * 101)

    assert len(long) == len(other) == 64
    assert long != other
    assert tool_name("a b", "c", {"mcp__a_b__c"}) != "mcp__a_b__c"


def test_trusted_servers_need_no_approval(scene):
    from mcp_types import Tool

    from holdfast.tools.mcp.tools import McpTool

    tool = McpTool("mcp__x__y", McpServer(name="x", url="u", trust=True), Tool(name="y", input_schema={}), None)

    assert tool.risk({}, scene) == ()
    assert tool.spec.description == "The tool y of the MCP server x."
    assert tool.spec.parameters == {"type": "object"}
