"""LangChain's model for the API, in its two modes."""

from typing import Any

import httpx
import openai
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.api.clients.talk import TOOL_CALL, WEATHER
from tests.api.serving import KEY

MODES: dict[str, dict[str, Any]] = {
    "chat": {},
    "responses": {"use_responses_api": True},
    "previous": {"use_responses_api": True, "use_previous_response_id": True},
}


@tool
def weather(place: str) -> str:
    """Tells the weather."""
    return WEATHER


class LangChain:
    errors = (openai.OpenAIError, httpx.HTTPError)
    tool_call = TOOL_CALL

    def __init__(self, url: str, form: str) -> None:
        mode, _, stream = form.partition(" ")
        model = ChatOpenAI(model="holdfast", base_url=f"{url}/v1", api_key=SecretStr(KEY), timeout=60, **MODES[mode])
        self._client = model.root_client
        self._model = model.bind_tools([weather])
        self._stream = bool(stream)
        self._history: list[Any] = []

    def say(self, words: str) -> str:
        history = [*self._history, HumanMessage(words)]
        while (message := self._invoke(history)).tool_calls:
            history.append(message)
            for call in message.tool_calls:
                history.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))
        self._history = [*history, message]
        return str(message.text)

    def _invoke(self, history: list[Any]) -> Any:
        if not self._stream:
            return self._model.invoke(history)
        whole: AIMessageChunk | AIMessage | None = None
        for piece in self._model.stream(history):
            whole = piece if whole is None else whole + piece  # type: ignore[operator]
        return whole

    def close(self) -> None:
        self._client.close()


def make(url: str, form: str) -> LangChain:
    return LangChain(url, form)
