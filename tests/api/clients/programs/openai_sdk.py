"""The official client for Python."""

from typing import Any

import httpx
import openai
from websockets.exceptions import WebSocketException

from tests.api.clients.talk import TOOL_CALL, WEATHER
from tests.api.serving import KEY

PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
    "additionalProperties": False,
}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS, "strict": True}}
RESPONSES_TOOL: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}


class OpenAiSdk:
    """`responses` and `websocket` continue from the last response; `items` sends the whole history as items."""

    errors = (openai.OpenAIError, httpx.HTTPError, WebSocketException, OSError)
    tool_call = TOOL_CALL

    def __init__(self, url: str, form: str) -> None:
        self._client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, timeout=60)
        self._form, _, stream = form.partition(" ")
        self._stream = bool(stream)
        self._history: list[Any] = []
        self._last: str | None = None

    def say(self, words: str) -> str:
        if self._form == "chat":
            return self._chat(words)
        return self._respond(words)

    def _chat(self, words: str) -> str:
        history = [*self._history, {"role": "user", "content": words}]
        while (message := self._complete(history)).tool_calls:
            history.append(message.to_dict())
            history += [{"role": "tool", "tool_call_id": call.id, "content": WEATHER} for call in message.tool_calls]
        self._history = [*history, {"role": "assistant", "content": message.content}]
        return str(message.content)

    def _complete(self, history: list[Any]) -> Any:
        options: Any = {"model": "holdfast", "messages": history, "tools": [CHAT_TOOL]}
        if not self._stream:
            return self._client.chat.completions.create(**options).choices[0].message
        with self._client.chat.completions.stream(**options) as stream:
            return stream.get_final_completion().choices[0].message

    def _respond(self, words: str) -> str:
        new: list[Any] = [{"role": "user", "content": words}]
        history, last = list(self._history), self._last
        while True:
            whole = self._form == "items"
            options: Any = {"input": [*history, *new] if whole else new, "store": not whole}
            response = self._create(**options, previous_response_id=None if whole else last)
            calls = [item for item in response.output if item.type == "function_call"]
            history += [*new, *(item.to_dict() for item in response.output)]
            new = [{"type": "function_call_output", "call_id": call.call_id, "output": WEATHER} for call in calls]
            last = response.id
            if not calls:
                self._history, self._last = history, last
                return str(response.output_text)

    def _create(self, **options: Any) -> Any:
        if self._form == "websocket":
            return self._create_on_websocket(**options)
        if not self._stream:
            return self._client.responses.create(model="holdfast", tools=[RESPONSES_TOOL], **options)
        with self._client.responses.stream(model="holdfast", tools=[RESPONSES_TOOL], **options) as stream:
            return stream.get_final_response()

    def _create_on_websocket(self, **options: Any) -> Any:
        """Each response has a connection of its own, as the server may be killed between two."""
        with self._client.responses.connect() as connection:
            connection.response.create(model="holdfast", tools=[RESPONSES_TOOL], **options)
            for event in connection:
                if event.type == "response.completed":
                    return event.response
                if event.type in ("error", "response.failed"):
                    raise openai.OpenAIError(event.to_json())
        raise openai.OpenAIError("the connection was closed")

    def close(self) -> None:
        self._client.close()


def make(url: str, form: str) -> OpenAiSdk:
    return OpenAiSdk(url, form)
