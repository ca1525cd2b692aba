"""The requests of clients that are too large to run in every test, as recorded from the real ones, in our own words.

Each is given as it goes over the wire: headers, order of messages, requests for titles and the like.
"""

import json
import uuid
from typing import Any

import httpx

from tests.api.clients.talk import TOOL_CALL, WEATHER
from tests.api.serving import KEY

Json = dict[str, Any]
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": PARAMETERS}}


def said(role: str, content: str) -> Json:
    return {"role": role, "content": content}


class Pattern:
    """Streams chat completions. `history` is that of the client, without system text."""

    errors = (httpx.HTTPError,)
    tool_call = TOOL_CALL
    agent = ""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60, headers=self.headers(), verify=False)
        self.history: list[Json] = []

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {KEY}", "user-agent": self.agent}

    def say(self, words: str) -> str:
        new = [said("user", words)]
        while (answer := self.stream(self.arrange(new), tools=[TOOL])).get("tool_calls"):
            new.append(answer)
            new += [{"role": "tool", "tool_call_id": call["id"], "content": WEATHER} for call in answer["tool_calls"]]
        self.history += [*new, answer]
        return str(answer["content"])

    def arrange(self, new: list[Json]) -> list[Json]:
        """The messages of a request."""
        return [*self.history, *new]

    def stream(self, messages: list[Json], **more: Any) -> Json:
        body = {"model": "holdfast", "messages": messages, "stream": True, **more}
        text, calls = "", list[Json]()
        with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                assert "error" not in chunk, chunk
                for choice in chunk["choices"]:
                    text += choice["delta"].get("content") or ""
                    calls += [
                        {k: v for k, v in call.items() if k != "index"}
                        for call in choice["delta"].get("tool_calls", [])
                    ]
        return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}

    def close(self) -> None:
        self._http.close()


class OpenCode(Pattern):
    """Two headers with its own name of the session. Its first request is for a title, under the same name."""

    agent = "opencode/1.18.33"
    SYSTEM = "You are opencode, an interactive tool for the command line."
    TITLE = "You are a title generator. You output ONLY a thread title. Nothing else."

    def headers(self) -> dict[str, str]:
        name = f"ses_{uuid.uuid4().hex}"
        return {**super().headers(), "x-session-affinity": name, "x-session-id": name}

    def say(self, words: str) -> str:
        if not self.history:
            asked = [said("system", self.TITLE), said("user", f"Generate a title for this conversation:\n\n{words}")]
            self.stream(asked, temperature=0.5)
        return super().say(words)

    def arrange(self, new: list[Json]) -> list[Json]:
        return [said("system", self.SYSTEM), *self.history, *new]


class OpenWebUi(Pattern):
    """After each reply it asks for follow-ups, after the first also for a title and tags. It may name the chat."""

    agent = "Python/3.11 aiohttp/3.12"
    TASKS = ("Generate a concise title with an emoji.", "Generate broad tags.", "Suggest relevant follow-up questions.")
    FORWARDS_NAMES = True

    def headers(self) -> dict[str, str]:
        name = {"x-openwebui-chat-id": str(uuid.uuid4()), "x-openwebui-user-id": str(uuid.uuid4())}
        return {**super().headers(), **(name if self.FORWARDS_NAMES else {})}

    def say(self, words: str) -> str:
        reply = super().say(words)
        shown = "\n".join(f"{one['role'].upper()}: {one.get('content')}" for one in self.history[-6:])
        for task in self.TASKS if len(self.history) <= 2 else self.TASKS[-1:]:
            prompt = (
                f"### Task:\n{task}\n### Output:\nJSON\n### Chat History:\n<chat_history>\n{shown}\n</chat_history>"
            )
            self.stream([said("user", prompt)])
        return reply


class OpenWebUiWithoutNames(OpenWebUi):
    FORWARDS_NAMES = False


class Aider(Pattern):
    """Examples, what was said, the current files with a reply that it makes up, and a reminder in the newest message only."""

    agent = "litellm/1.81.10"
    EXAMPLES = (said("user", "Change f to use g."), said("assistant", "f now uses g."))
    REMINDER = "\n\n# Rules\nEvery block must use the format of the examples."

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.version = 0

    def say(self, words: str) -> str:
        reply = super().say(words)
        self.version += 1
        return reply

    def arrange(self, new: list[Json]) -> list[Json]:
        files = said("user", f"I have added these files to the chat.\n\na.py\nversion {self.version}")
        known = said("assistant", "Ok, any changes I propose will be to those files.")
        newest = said("user", new[0]["content"] + self.REMINDER)
        system = said("system", "Act as an expert developer.")
        return [system, *self.EXAMPLES, *self.history, files, known, newest, *new[1:]]


class SlidingWindow(Pattern):
    """Sends the newest messages only."""

    agent = "window/1"
    SIZE = 6

    def arrange(self, new: list[Json]) -> list[Json]:
        start = max(0, len(self.history) - self.SIZE)
        while start and self.history[start]["role"] == "tool":
            start -= 1
        return [*self.history[start:], *new]


PATTERNS = {
    "opencode": OpenCode,
    "open-webui": OpenWebUi,
    "open-webui without names": OpenWebUiWithoutNames,
    "aider": Aider,
    "sliding window": SlidingWindow,
}


def make(url: str, form: str) -> Pattern:
    return PATTERNS[form](url)
