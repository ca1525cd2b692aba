"""What a server asks while a call runs: questions, tasks, completions, directories; and a server that floods."""

import asyncio
import contextvars
import json
import logging
import sys
from pathlib import Path

import psutil
import pytest
from msgspec import structs

from holdfast.model.message import text_of
from holdfast.model.tool import CallAnswer, Completion
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.servers import McpServers
from holdfast.tools.toolbox import Toolbox
from tests.tools.mcp.test_tools import ServerRecord, until

pytestmark = [pytest.mark.timeout(240), pytest.mark.process]

PROGRAM = str(Path(__file__).parents[2] / "fakes" / "mcp_raw.py")


class Host:
    """A session that answers at once, or never."""

    def __init__(self, answer=None, completion=None):
        self.answer = answer
        self.completion = completion
        self.questions = []
        self.checkpoints = []
        self.reports = []
        self.stopped = False

    async def ask(self, question):
        self.questions.append(question)
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer

    async def checkpoint(self, state):
        self.checkpoints.append(state)

    async def complete(self, request):
        self.questions.append(request)
        return self.completion

    async def record_change(self, change):
        raise AssertionError("these tools change no files")

    async def record_command(self, changes, *, call_id=""):
        raise AssertionError("these tools run no commands")

    def show_output(self, text):
        raise AssertionError("these tools run no commands")

    def report(self, text):
        self.reports.append(text)

    def is_stopped(self):
        return self.stopped


@pytest.fixture
def record(tmp_path):
    (tmp_path / "deeds").mkdir()
    return ServerRecord(tmp_path / "deeds")


@pytest.fixture(params=["modern", "core"])
def era(request):
    return request.param


def server_of(record, era):
    return McpServer(name="raw", command=(sys.executable, PROGRAM, str(record.folder), era))


async def call(servers, scene, name, host, **context):
    tool = Toolbox(servers.tools()).get(f"mcp__raw__{name}")
    return await tool.run({}, structs.replace(scene, host=host, **context))


ANN = CallAnswer(action="accept", content='{"name": "Ann", "age": 30}')


async def test_a_question_of_the_server_reaches_the_person_and_the_answer_the_server(record, era, scene):
    host = Host(ANN)
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "ask", host)

    assert text_of(output.parts) == 'answered accept {"name": "Ann", "age": 30}'
    (question,) = host.questions
    assert (question.message, question.kind) == ("Who are you?", "elicitation")
    assert json.loads(question.form)["required"] == ["name"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_server_learns_that_the_person_did_not_answer(record, era, scene, action):
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "ask", Host(CallAnswer(action=action)))

    assert text_of(output.parts) == f"answered {action} null"


async def test_the_time_limit_of_a_call_does_not_run_while_the_person_is_asked(record, era, scene):
    class SlowPerson(Host):
        async def ask(self, question):
            await asyncio.sleep(1.5)
            return ANN

    async with McpServers([server_of(record, era)], call_seconds=1) as servers:
        output = await call(servers, scene, "ask", SlowPerson())

    assert output.ok


async def test_a_call_that_waits_for_an_answer_is_continued_by_another_worker(record, scene):
    first, second = Host(), Host(ANN)
    async with McpServers([server_of(record, "modern")]) as servers:
        waiting = asyncio.ensure_future(call(servers, scene, "ask", first))
        await until(lambda: first.questions)
        waiting.cancel()
        await asyncio.wait({waiting})
    (checkpoint,) = first.checkpoints

    async with McpServers([server_of(record, "modern")]) as servers:
        output = await call(servers, scene, "ask", second, checkpoint=checkpoint)

    assert text_of(output.parts) == 'answered accept {"name": "Ann", "age": 30}'
    assert second.questions == first.questions, "the same key, so that nobody is asked twice"
    assert record["states"] == ["opaque"]
    assert second.checkpoints[-1] == "", "once the answer is on its way, the server may act"


async def test_a_task_is_continued_by_another_worker(record, scene):
    first, second = Host(), Host()
    async with McpServers([server_of(record, "modern")]) as servers:
        waiting = asyncio.ensure_future(call(servers, scene, "job", first))
        await until(lambda: len(record["polls"]) > 2)
        assert "task-7" in first.checkpoints[0]
        waiting.cancel()
        await asyncio.wait({waiting})
    assert record["cancelled"] == [], "another worker continues to wait"

    (record.folder / "job-done").touch()
    async with McpServers([server_of(record, "modern")]) as servers:
        output = await call(servers, scene, "job", second, checkpoint=first.checkpoints[-1])

    assert text_of(output.parts) == "dug"
    assert record["calls"] == ["job"], "it was called once"


async def test_a_task_is_cancelled_if_the_person_stops_the_turn(record, scene):
    host = Host()
    async with McpServers([server_of(record, "modern")]) as servers:
        waiting = asyncio.ensure_future(call(servers, scene, "job", host))
        await until(lambda: record["polls"])
        host.stopped = True
        waiting.cancel()
        await asyncio.wait({waiting})

    assert record["cancelled"] == ["task-7"]


async def test_a_task_asks_the_person(record, scene):
    host = Host(ANN)
    async with McpServers([server_of(record, "modern")]) as servers:
        output = await call(servers, scene, "asking_job", host)

    assert text_of(output.parts) == "dug"
    assert json.loads((record.folder / "updates").read_text())["q"]["content"] == {"name": "Ann", "age": 30}


async def test_a_server_can_use_the_model_if_the_person_agrees(record, era, scene):
    agreed, refused = Host(completion=Completion(text="Hello!", model="m")), Host()
    async with McpServers([server_of(record, era)]) as servers:
        given = await call(servers, scene, "sample", agreed)
        denied = await call(servers, scene, "sample", refused)

    assert "Hello!" in text_of(given.parts)
    assert agreed.questions[0].messages[0].text == "Say hello"
    assert "rejected" in text_of(denied.parts)


async def test_the_root_is_the_working_directory(record, era, scene):
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "roots", Host())

    assert text_of(output.parts).rstrip("/") == scene.workdir.as_uri()


async def test_without_a_session_every_question_is_refused(record, era, scene):
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "ask", None)

    assert "nobody can answer" in text_of(output.parts)


async def test_questions_of_a_shared_process_are_refused_while_two_sessions_use_it(scene):
    from holdfast.tools.mcp.running_call import RunningCall, RunningCalls

    calls = RunningCalls()
    one, other = (RunningCall(structs.replace(scene, session_id=name), 60) for name in ("hf-1", "hf-2"))

    def found():
        """As the library sees it, in a task of its own."""
        return contextvars.Context().run(calls.find)

    assert found() is None
    with calls.running(one):
        assert found() is one
        with calls.running(other):
            assert found() is None
            assert calls.find() is other, "over HTTP the context names the call"


async def test_a_server_that_floods_is_limited(record, era, scene, caplog):
    host = Host()
    async with McpServers([server_of(record, era)]) as servers:
        before = psutil.Process().memory_info().rss
        with caplog.at_level(logging.INFO):
            output = await call(servers, scene, "chatty", host)
        grown = psutil.Process().memory_info().rss - before

        assert text_of(output.parts) == "done", "nothing is lost"
        assert len(host.reports) < 1_000
        assert len([one for one in caplog.records if "MCP server raw" in one.getMessage()]) <= 1_001
        assert max(one.levelno for one in caplog.records if "MCP server raw" in one.getMessage()) == logging.INFO
        assert grown < 100_000_000


async def test_a_result_that_is_too_long_is_an_error_and_the_next_call_works(record, era, scene):
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "huge", Host())
        assert not output.ok
        assert "longer than" in text_of(output.parts)

        assert (await call(servers, scene, "ask", Host(ANN))).ok


async def test_a_result_without_a_type_is_complete(record, era, scene):
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "short", Host())

    assert (output.ok, text_of(output.parts)) == (True, "short")


async def test_lines_that_are_no_messages_are_skipped(record, era, scene, caplog):
    async with McpServers([server_of(record, era)]) as servers:
        output = await call(servers, scene, "junk", Host())

    assert text_of(output.parts) == "after the junk"
    assert len(caplog.records) < 100
