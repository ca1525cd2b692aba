"""HoldfastHistory for pydantic-ai: a conversation continues in another process, unchanged and written by one at a time."""

import asyncio
import math
import re
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.test import TestModel

from holdfast.adapters.framework_session import constant, framework_session
from holdfast.adapters.items import encode_item
from holdfast.adapters.pydantic_ai import ADAPTER, HoldfastHistory
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.session import Session, as_message
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.adapters.agent_kills import KILLED, AgentForks, start_agent
from tests.sampling import limit

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
NAME = "chat-1"


def said(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text)])


def agent_with_a_tool() -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(TestModel(custom_output_text="It rains."))

    @agent.tool_plain
    def weather(place: str) -> dict[str, str]:
        return {"place": place, "sky": "grey"}

    return agent


async def test_a_conversation_with_a_tool_continues_after_a_restart(url: str) -> None:
    history = HoldfastHistory(NAME, url)
    first = await agent_with_a_tool().run("How is the weather?")
    await history.save(first)
    close_stores()
    loaded = await HoldfastHistory(NAME, url).load()
    second = await agent_with_a_tool().run("And now?", message_history=loaded)
    await HoldfastHistory(NAME, url).save(second)

    assert loaded == first.all_messages()
    assert await HoldfastHistory(NAME, url).load() == second.all_messages()
    assert await HoldfastHistory(NAME, url).load(1) == second.all_messages()[-1:]


async def test_a_history_is_used_again_after_its_store_was_closed(url: str) -> None:
    history = HoldfastHistory(NAME, url)
    await history.add([said("a")])
    close_stores()
    await history.add([said("b")])

    assert [message.parts[0].content for message in await history.load()] == ["a", "b"]  # type: ignore[union-attr]


async def test_messages_are_shown_with_their_calls_and_results(url: str) -> None:
    await HoldfastHistory(NAME, url).save(await agent_with_a_tool().run("How is the weather?"))

    def read(tx: Transaction) -> list[Any]:
        session: Session = sessions.resolve(tx, f"{ADAPTER}:{NAME}").session
        return [message for entry in log.read_complete(tx, session) if (message := as_message(entry))]

    found = shared_store(url).database.submit_read(read).result()
    assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"]
    assert [found[0].text, found[1].tool_calls[0].name, found[3].text] == [
        "How is the weather?",
        "weather",
        "It rains.",
    ]
    assert "grey" in found[2].text


async def test_cleared_messages_leave_the_history(url: str) -> None:
    history = HoldfastHistory(NAME, url)
    await history.clear()
    await history.add([said("a"), said("b")])
    await history.clear()
    await history.add([said("c")])

    assert [message.parts[0].content for message in await history.load()] == ["c"]  # type: ignore[union-attr]
    with pytest.raises(Invalid, match="negative"):
        await history.load(-1)


async def test_a_message_that_this_release_cannot_read_is_named_and_stays(url: str) -> None:
    history = HoldfastHistory(NAME, url)
    await history.add([said("a")])
    item = encode_item(ADAPTER, {"kind": "of_next_year", "parts": []})
    await framework_session(shared_store(url), ADAPTER, NAME).write(constant([item]))

    with pytest.raises(Invalid, match="cannot read the messages of chat-1; they are stored unchanged"):
        await history.load()


@pytest.mark.parametrize("bad", [math.nan, object()])
async def test_what_is_not_json_is_refused_by_name_and_nothing_is_saved(url: str, bad: object) -> None:
    history = HoldfastHistory(NAME, url)
    with pytest.raises(Invalid, match=r"pydantic-ai is not JSON and was not saved"):
        await history.add([said("a"), ModelRequest(parts=[UserPromptPart("b")], metadata={"bad": bad})])

    assert await history.load() == []


@pytest.mark.slow
async def test_a_save_after_another_process_has_saved_is_refused(each_url: str) -> None:
    history = HoldfastHistory(NAME, each_url)
    await history.add([said("mine")])
    await history.release()
    with start_agent("pydantic_agent", each_url, NAME, 0) as other:
        assert other.wait_for_output("0\n"), other.stderr
        other.kill()

    with pytest.raises(Conflict, match="Read it again"):
        await history.add([said("late")])


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(limit(2))
def test_promise_1_every_message_of_a_killed_agent_is_there_once_and_in_order(each_url: str) -> None:
    first = 0
    with AgentForks("pydantic_agent") as agents:
        for _ in range(KILLED):
            acknowledged = max(agents.kill_one(each_url, NAME, first))
            found = asyncio.run(HoldfastHistory(NAME, each_url).load())
            texts = [re.findall(r"(say|reply) (\d+)", str(message))[0] for message in found]
            assert texts == [(kind, str(n)) for n in range(len(texts) // 2) for kind in ("say", "reply")]
            assert acknowledged < len(texts) // 2
            first = len(texts) // 2
            close_stores()
