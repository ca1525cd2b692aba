"""Clients in Python, unmodified: the official one, LangChain, llm, the OpenAI Agents SDK and Pydantic AI."""

import json
import uuid
from pathlib import Path
from typing import Any

import pydantic_ai
import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.api.clients.conversation import Conversation
from tests.api.clients.programs.llm_command import FUNCTIONS, configure_llm, llm
from tests.api.serving import KEY, Server

pytestmark = [pytest.mark.soak, pytest.mark.clients, pytest.mark.timeout(180)]


def weather_call() -> str:
    return f'use tool weather {{"place": "Bonn"}}\n{uuid.uuid4().hex}'


# the official client


def test_openai_for_python_continues_a_chat(server: Server) -> None:
    conversation, messages = Conversation(), []
    with server.openai() as client:
        for n, line in enumerate(conversation.all):
            messages.append({"role": "user", "content": line})
            said = chat(client, messages, stream=bool(n % 2))
            messages.append({"role": "assistant", "content": said})

    conversation.check(server, [message["content"] for message in messages[1::2]])


def chat(client: Any, messages: list[Any], *, stream: bool) -> str:
    made = client.chat.completions.create(model="holdfast", messages=messages, stream=stream)
    if not stream:
        return str(made.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in made)


def test_openai_for_python_continues_responses(server: Server) -> None:
    conversation, replies, last = Conversation(), [], None
    with server.openai() as client:
        for n, line in enumerate(conversation.all):
            if n % 2:
                with client.responses.stream(model="holdfast", input=line, previous_response_id=last) as stream:
                    done: Any = stream.until_done().get_final_response()
            else:
                done = client.responses.create(model="holdfast", input=line, previous_response_id=last)
            last = done.id
            replies.append(done.output_text)

    conversation.check(server, replies)


# LangChain


def langchain(server: Server, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="holdfast", base_url=f"{server.url}/v1", api_key=SecretStr(KEY), max_retries=0, **more)


@tool
def weather(place: str) -> str:
    """Tells the weather."""
    return f"Rain in {place}."


FORMS: list[dict[str, Any]] = [{}, {"use_responses_api": True}]


@pytest.mark.parametrize("form", [*FORMS, {"use_responses_api": True, "use_previous_response_id": True}], ids=str)
def test_langchain_continues_its_session_through_compactions(server: Server, form: dict[str, Any]) -> None:
    conversation, messages, model = Conversation(), [], langchain(server, **form)
    for line in conversation.all:
        messages.append(HumanMessage(line))
        messages.append(model.invoke(messages))

    conversation.check(server, [str(message.text) for message in messages[1::2]])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_langchain_streams(server: Server, form: dict[str, Any]) -> None:
    pieces = [str(piece.text) for piece in langchain(server, **form).stream("hello")]

    assert "".join(pieces) == "You said: hello"


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_langchain_runs_its_tools(server: Server, form: dict[str, Any]) -> None:
    model = langchain(server, **form).bind_tools([weather])
    messages: list[Any] = [HumanMessage(weather_call())]
    messages.append(model.invoke(messages))
    for call in messages[-1].tool_calls:
        messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))

    assert "Rain in Bonn." in str(model.invoke(messages).text)


# llm


@pytest.fixture
def llm_home(server: Server, tmp_path: Path) -> Path:
    return configure_llm(tmp_path, server.url)


def test_llm_continues_its_session_through_compactions(server: Server, llm_home: Path) -> None:
    conversation = Conversation()
    typed = [f"!multi\n{line}\n!end\n" for line in conversation.all]

    shown = llm(llm_home, "chat", "-m", "holdfast", said="".join(typed) + "quit\n")

    conversation.check(server, [part for part in shown.split("> ") if part.startswith(("You said:", "done:"))])


def test_llm_works_with_and_without_streaming(llm_home: Path) -> None:
    assert llm(llm_home, "-m", "holdfast", "hello", "--no-stream") == "You said: hello\n"
    assert llm(llm_home, "-m", "holdfast", "hello") == "You said: hello\n"


def test_llm_runs_its_tools(llm_home: Path) -> None:
    assert "Rain in Bonn." in llm(llm_home, "-m", "holdfast", "--functions", FUNCTIONS, weather_call())


# agents whose tools are strict by default


def forecast(place: str) -> str:
    """Tells the weather of a place."""
    return f"sunny in {place}"


@pytest.mark.parametrize("model", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
async def test_the_agents_sdk_runs_a_tool(upstream: Server, record: Path, model: Any) -> None:
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key=KEY, timeout=60) as client:
        agent = Agent(
            name="Reporter",
            instructions="Report the weather.",
            tools=[function_tool(forecast)],
            model=model(model="holdfast", openai_client=client),
        )
        result = await Runner.run(agent, 'use tool forecast {"place": "Bonn"}')

    assert "sunny in Bonn" in result.final_output
    assert_strict(record)


async def test_pydantic_ai_runs_a_tool(upstream: Server, record: Path) -> None:
    async with AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key=KEY, timeout=60) as client:
        model = OpenAIChatModel("holdfast", provider=OpenAIProvider(openai_client=client))
        agent = pydantic_ai.Agent(model, instructions="Report the weather.", tools=[forecast])
        result = await agent.run('use tool forecast {"place": "Bonn"}')

    assert "sunny in Bonn" in result.output
    assert_strict(record)


def assert_strict(record: Path) -> None:
    """Every request to the model had the client's prompt and the tool as strict."""
    for line in record.read_text().splitlines():
        request = json.loads(line)
        tools = {tool["function"]["name"]: tool["function"] for tool in request["tools"]}
        assert tools["forecast"]["strict"] is True
        assert tools["forecast"]["parameters"]["additionalProperties"] is False
        assert request["messages"][0] == {"role": "system", "content": "Report the weather."}
