"""A model that counts what it is shown, and refuses what is over its window; and one that writes summaries, well or badly."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from holdfast.engine.compact import Compacting
from holdfast.engine.summary import SYSTEM, Author
from holdfast.model.asking import Delta, Reply, Request, Restarted, TextDelta
from holdfast.model.errors import ContextTooLong
from holdfast.model.event import Usage
from holdfast.model.message import Message, Part, Reasoning, Text, ToolCall, ToolResult, text_of

Stream = AsyncIterator[Delta | Restarted | Reply]
Answer = Callable[[Request], tuple[Part, ...]]


def tokens(request: Request) -> int:
    """What this model counts: four letters are a token, and there is something around each message."""
    said = sum(_letters(part) for message in request.messages for part in message.parts)
    tools = sum(len(tool.description) + len(json.dumps(tool.parameters)) for tool in request.tools)
    return (said + len(request.system) + tools) // 4 + 4 * len(request.messages)


def _letters(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text)
        case ToolCall():
            return len(part.name) + len(part.arguments)
        case ToolResult():
            return sum(map(_letters, part.parts))
        case _:
            return 4_000


def dangling(messages: tuple[Message, ...]) -> set[str]:
    """Calls without a result right behind them, and results without a call."""
    called: list[str] = []
    answered: list[str] = []
    for message in messages:
        if message.role != "tool":
            if set(called) != set(answered):
                break
            called, answered = [call.id for call in message.tool_calls], []
        answered += [part.call_id for part in message.parts if isinstance(part, ToolResult)]
    return set(called) ^ set(answered)


class Reader:
    """Answers, and remembers every request. Summaries are written by `sum_up`, at once or when `go` is set."""

    def __init__(self, window: int, answer: Answer | None = None, *, counts: bool = True) -> None:
        self.window = window
        self.counts = counts
        """Whether it says how many tokens it has read."""
        self.share = 1.0
        """How much of it is counted: some servers leave out what they had in a cache."""
        self.shown: list[Request] = []
        self.summed_up: list[Request] = []
        self.refused = 0
        self.go = asyncio.Event()
        self.go.set()
        self.asked = asyncio.Event()
        """Set when a summary has been asked for."""
        self.summary: Callable[[Request], Reply] = self.write
        self._answer = answer or (lambda request: (Text(f"Noted: {newest(request)[:40]}"),))

    async def ask(self, request: Request) -> Stream:
        size = tokens(request)
        if size > self.window:
            self.refused += 1
            raise ContextTooLong(f"{size} tokens are more than {self.window}")
        if request.system == SYSTEM:
            self.summed_up.append(request)
            self.asked.set()
            await self.go.wait()
            yield self.summary(request)
            return
        self.shown.append(request)
        parts = self._answer(request)
        yield TextDelta(text_of(parts))
        usage = Usage(tokens_in=int(size * self.share), tokens_out=10) if self.counts else Usage()
        yield Reply(parts=parts, model="m", finish="stop", usage=usage)

    def write(self, request: Request) -> Reply:
        """A summary that says how long what it was shown is, and nothing that could be found in it."""
        return wrote(f"They talked; {len(request.messages[0].text)} letters of it.", tokens_in=tokens(request))

    def compacting(
        self,
        *,
        models: tuple[str, ...] = ("m",),
        keep_last: int = 8,
        on_failure: str = "digest",
        timeout: float = 30,
        window: int | None = None,
    ) -> Compacting:
        author = Author(models, self.ask, lambda model: self.window, timeout, on_failure)  # type: ignore[arg-type]
        return Compacting(window or self.window, 0.75, keep_last, author)


def wrote(text: str, *, finish: str = "stop", tokens_in: int = 0) -> Reply:
    return Reply(parts=(Text(text),), model="m", finish=finish, usage=Usage(tokens_in=tokens_in, tokens_out=10))


def newest(request: Request) -> str:
    """The newest words of the user, without the summary that may stand in the same role before them."""
    return next((message.text for message in reversed(request.messages) if message.role == "user"), "")
