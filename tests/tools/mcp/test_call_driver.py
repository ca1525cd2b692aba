"""Calls of several requests, and a server that is away in between."""

import asyncio

import mcp_types as types
import pytest
from mcp import MCPError
from msgspec import structs

from holdfast.model.errors import LoginFailed, Unavailable
from holdfast.model.tool import CallAnswer, Completion
from holdfast.tools.mcp.call_driver import CallDriver
from holdfast.tools.mcp.running_call import RunningCall
from holdfast.tools.mcp.server_requests import ServerRequests
from holdfast.tools.mcp.tasks import RemoteTask, RemoteTaskReport
from tests.tools.mcp.test_server_requests import Host

DUG = {"content": [{"type": "text", "text": "dug"}]}
TASK = RemoteTask(task_id="7")
WORKING = RemoteTaskReport(task_id="7", status="working", poll_interval_ms=1)
COMPLETED = RemoteTaskReport(task_id="7", status="completed", result=DUG)
AGAIN = types.InputRequiredResult(request_state="opaque")
AWAY = Unavailable("no answer"), LoginFailed("it wants a login")


class ScriptedConnection:
    """Answers each request with the next answer, then with none; cannot be opened again."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.is_waiting = asyncio.Event()

    async def request(self, send, *, may_repeat):
        if not self.answers:
            self.is_waiting.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def open(self):
        raise Unavailable("no answer")


def run(connection, scene, seconds=60, requests=None, **context):
    tool = types.Tool(name="dig", input_schema={"type": "object"})
    driver = CallDriver(connection, requests or ServerRequests("raw"), tool, {}, may_repeat=False)
    return driver.run(RunningCall(structs.replace(scene, **context), seconds))


@pytest.mark.parametrize("away", AWAY)
async def test_a_first_request_that_is_not_sent_is_known_to_do_nothing(scene, away):
    with pytest.raises(type(away)):
        await run(ScriptedConnection(away), scene)


@pytest.mark.parametrize("away", AWAY)
async def test_a_later_request_that_is_not_sent_leaves_the_outcome_unknown(scene, away):
    with pytest.raises(ConnectionError, match=str(away)):
        await run(ScriptedConnection(AGAIN, away), scene)


@pytest.mark.parametrize("away", [*AWAY, ConnectionError("closed")])
async def test_a_task_is_polled_until_the_server_is_back(scene, away):
    result = await run(ScriptedConnection(TASK, WORKING, away, COMPLETED), scene)

    assert result.content[0].text == "dug"


async def test_a_task_of_a_server_that_stays_away_ends_with_the_time_limit(scene):
    with pytest.raises(TimeoutError):
        await run(ScriptedConnection(TASK, *[Unavailable("no answer")] * 100), scene, seconds=0.01)


async def test_a_stopped_turn_stops_although_the_server_is_away(scene):
    host, connection = Host(), ScriptedConnection(TASK, WORKING)
    waiting = asyncio.ensure_future(run(connection, scene, host=host))
    await connection.is_waiting.wait()
    host.stopped = True
    waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled()


def asks(key="q", state="opaque"):
    params = types.ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}})
    return types.InputRequiredResult(input_requests={key: types.ElicitRequest(params=params)}, request_state=state)


async def test_a_state_that_is_too_long_is_not_stored(scene):
    host = Host()
    with pytest.raises(MCPError, match="longer than 1,000,000 bytes"):
        await run(ScriptedConnection(asks(state="x" * 1_000_000)), scene, host=host)

    assert host.checkpoints == []


async def test_the_key_of_a_question_is_short_however_the_server_names_it(scene):
    class OpenConnection(ScriptedConnection):
        """Its client gives the questions to the driver's own callbacks."""

        async def open(self):
            self.session = self
            return self

        async def dispatch_input_request(self, context, request):
            return await requests.elicit(context, request.params)

    requests, host = ServerRequests("raw"), Host(CallAnswer(action="decline"))
    connection = OpenConnection(asks("k" * 100_000), types.CallToolResult(content=[]))
    await run(connection, scene, requests=requests, host=host)

    assert len(host.questions[0].key) < 100


@pytest.mark.parametrize("where", ["system", "image", "text"])
async def test_a_completion_request_is_limited_as_a_whole(scene, where):
    long = "x" * 100_001
    block = (
        types.ImageContent(type="image", data=long, mime_type="image/png")
        if where == "image"
        else types.TextContent(type="text", text=long if where == "text" else "hello")
    )
    params = types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=block)],
        system_prompt=long if where == "system" else None,
        max_tokens=10,
    )
    requests, host = ServerRequests("raw"), Host(completion=Completion(text="Hello!", model="m"))
    with requests.calls.running(RunningCall(structs.replace(scene, host=host), 60)):
        answer = await requests.sample(None, params)

    assert isinstance(answer, types.ErrorData)
    assert host.questions == []
