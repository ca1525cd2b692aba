"""The connection that the calls of all sessions share."""

import contextlib
import contextvars

import pytest
from msgspec import structs

from holdfast.model.message import text_of
from holdfast.tools.mcp.connection import McpConnection
from holdfast.tools.mcp.resources import PromptTool
from holdfast.tools.mcp.running_call import RunningCall, RunningCalls


async def test_a_connection_does_not_belong_to_the_call_that_opens_it(scene):
    calls = RunningCalls()
    one, other = (RunningCall(structs.replace(scene, session_id=name), 60) for name in ("hf-1", "hf-2"))
    contexts = []

    @contextlib.asynccontextmanager
    async def connect():
        contexts.append(contextvars.copy_context())
        yield object()

    connection = McpConnection(connect, ping_seconds=60, connect_seconds=60)
    with calls.running(one):
        await connection.open()
        (context,) = contexts
        with calls.running(other):
            assert context.run(calls.find) is None, "the request may belong to either session"
    with calls.running(other):
        assert context.run(calls.find) is other
    await connection.close()


async def test_a_call_that_has_ended_gets_no_requests(scene):
    calls = RunningCalls()
    one, other = (RunningCall(structs.replace(scene, session_id=name), 60) for name in ("hf-1", "hf-2"))
    with calls.running(one):
        context = contextvars.copy_context()

    assert context.run(calls.find) is None
    with calls.running(other):
        assert context.run(calls.find) is other


@pytest.mark.parametrize("arguments", ["[1]", "null", '"text"', "no json"])
async def test_arguments_of_a_prompt_that_are_no_object_are_refused_before_anything_is_sent(scene, arguments):
    async def connect():
        raise AssertionError("it connects")

    tool = PromptTool("get_prompt", "raw", McpConnection(connect, ping_seconds=60, connect_seconds=60))
    output = await tool.run({"prompt": "review", "arguments": arguments}, scene)

    assert not output.ok
    assert text_of(output.parts).startswith("arguments must be a JSON object")
