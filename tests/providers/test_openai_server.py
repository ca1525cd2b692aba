"""The fake OpenAI API as a program, as other tests start it."""

import json
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from holdfast.model.message import Text
from holdfast.model.provider import ModelReply
from holdfast.providers.openai.provider import OpenAiProvider
from tests.fakes import openai_server
from tests.providers.messages import asking, user


@pytest.mark.process
async def test_it_runs_as_a_program_and_prints_its_port(tmp_path: Path) -> None:
    record = tmp_path / "requests.jsonl"
    command = [sys.executable, str(openai_server.__file__), "--port", "0", "--record", str(record)]
    process = await create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    provider = OpenAiProvider("key", f"http://127.0.0.1:{port}/v1")

    *_, reply = [item async for item in provider.ask(asking(user("hello")))]

    assert isinstance(reply, ModelReply)
    assert reply.parts == (Text("You said: hello"),)
    assert json.loads(record.read_text())["messages"][-1] == {"role": "user", "content": "hello"}
    await provider.close()
    process.kill()
    await process.communicate()


def test_unpaired_calls_and_results_are_refused_as_by_the_vendor() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    asked = {"role": "user", "content": "a"}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    answered = {"role": "tool", "tool_call_id": "c1", "content": "b"}

    def complaint(*messages: object) -> str:
        return openai_server.complaint({"model": "m", "messages": list(messages)}) or ""

    assert complaint(asked, calling, answered) == ""
    assert "did not have response messages: c1" in complaint(asked, calling)
    assert "did not have response messages: c1" in complaint(asked, calling, asked)
    assert "must be a response to a preceding message" in complaint(asked, answered)
    assert "must be a response to a preceding message" in complaint(asked, calling, answered, answered)
