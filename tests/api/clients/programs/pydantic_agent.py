"""Pydantic AI, with both of its models for the API."""

import asyncio
from typing import Any

import httpx
import openai
import pydantic_ai
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.api.clients.talk import TOOL_CALL, WEATHER
from tests.api.serving import KEY

MODELS: dict[str, Any] = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}


def weather(place: str) -> str:
    """Tells the weather."""
    return WEATHER


class PydanticAgent:
    errors = (openai.OpenAIError, httpx.HTTPError, AgentRunError)
    tool_call = TOOL_CALL

    def __init__(self, url: str, form: str) -> None:
        self._url = url
        self._model, _, stream = form.partition(" ")
        self._stream = bool(stream)
        self._history: list[Any] = []

    def say(self, words: str) -> str:
        return asyncio.run(self._say(words))

    async def _say(self, words: str) -> str:
        async with openai.AsyncOpenAI(base_url=f"{self._url}/v1", api_key=KEY, timeout=60) as client:
            model = MODELS[self._model]("holdfast", provider=OpenAIProvider(openai_client=client))
            agent: Any = pydantic_ai.Agent(model, instructions="Report the weather.", tools=[weather])
            if not self._stream:
                result = await agent.run(words, message_history=self._history)
                self._history = result.all_messages()
                return str(result.output)
            async with agent.run_stream(words, message_history=self._history) as streamed:
                output = await streamed.get_output()
                self._history = streamed.all_messages()
                return str(output)

    def close(self) -> None:
        """Each turn has closed its own client."""


def make(url: str, form: str) -> PydanticAgent:
    return PydanticAgent(url, form)
