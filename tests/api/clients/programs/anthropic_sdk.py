"""Anthropic's client for Python."""

from typing import Any

import anthropic
import httpx
import httpx2

from tests.api.clients.talk import TOOL_CALL, WEATHER
from tests.api.serving import KEY

PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL: Any = {"name": "weather", "description": "Tells the weather.", "input_schema": PARAMETERS}


class AnthropicSdk:
    """Sends its whole history with each request."""

    errors = (anthropic.AnthropicError, httpx.HTTPError, httpx2.HTTPError)
    tool_call = TOOL_CALL

    def __init__(self, url: str, form: str) -> None:
        self._client = anthropic.Anthropic(base_url=url, api_key=KEY, timeout=60)
        self._stream = form == "stream"
        self._history: list[Any] = []

    def say(self, words: str) -> str:
        history = [*self._history, {"role": "user", "content": words}]
        while (message := self._create(history)).stop_reason == "tool_use":
            calls = [block for block in message.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": WEATHER} for call in calls]
            history += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        self._history = [*history, {"role": "assistant", "content": message.content}]
        return "".join(block.text for block in message.content if block.type == "text")

    def _create(self, history: list[Any]) -> anthropic.types.Message:
        asked: Any = {"model": "holdfast", "max_tokens": 1024, "messages": history, "tools": [TOOL]}
        if not self._stream:
            message: anthropic.types.Message = self._client.messages.create(**asked)
            return message
        with self._client.messages.stream(**asked) as stream:
            return stream.get_final_message()

    def close(self) -> None:
        self._client.close()


def make(url: str, form: str) -> AnthropicSdk:
    return AnthropicSdk(url, form)
