"""The OpenAI Agents SDK, with both of its model classes."""

import asyncio
from typing import Any

import httpx
import openai
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from tests.api.clients.talk import TOOL_CALL, WEATHER
from tests.api.serving import KEY

MODELS: dict[str, Any] = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


@function_tool
def weather(place: str) -> str:
    """Tells the weather."""
    return WEATHER


class AgentsSdk:
    errors = (openai.OpenAIError, httpx.HTTPError)
    tool_call = TOOL_CALL

    def __init__(self, url: str, form: str) -> None:
        set_tracing_disabled(True)
        self._url = url
        self._model, _, stream = form.partition(" ")
        self._stream = bool(stream)
        self._history: list[Any] = []

    def say(self, words: str) -> str:
        return asyncio.run(self._say(words))

    async def _say(self, words: str) -> str:
        async with openai.AsyncOpenAI(base_url=f"{self._url}/v1", api_key=KEY, timeout=60) as client:
            model = MODELS[self._model](model="holdfast", openai_client=client)
            agent = Agent(name="Reporter", instructions="Report the weather.", tools=[weather], model=model)
            given: Any = [*self._history, {"role": "user", "content": words}]
            if self._stream:
                result: Any = Runner.run_streamed(agent, given)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, given)
            self._history = result.to_input_list()
            return str(result.final_output)

    def close(self) -> None:
        """Each turn has closed its own client."""


def make(url: str, form: str) -> AgentsSdk:
    return AgentsSdk(url, form)
