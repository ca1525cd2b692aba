"""A model that counts tokens and refuses contexts over its window; and one that writes summaries, good or bad ones."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.compaction.summarize import SYSTEM, SummaryAuthor
from holdfast.model.errors import ContextTooLong
from holdfast.model.event import Usage
from holdfast.model.message import Message, Part, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.provider import Delta, ModelReply, ModelRequest, StreamRestarted, TextDelta

Stream = AsyncIterator[Delta | StreamRestarted | ModelReply]
Answer = Callable[[ModelRequest], tuple[Part, ...]]


def tokens(request: ModelRequest) -> int:
    """The token count of this model: four characters per token, plus an overhead per message."""
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
    """Calls without a result right after them, and results without a call."""
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
        """Whether it reports token counts."""
        self.share = 1.0
        """How much of it is counted: some servers leave out what they had in a cache."""
        self.shown: list[ModelRequest] = []
        self.summed_up: list[ModelRequest] = []
        self.refused = 0
        self.go = asyncio.Event()
        self.go.set()
        self.asked = asyncio.Event()
        """Set when a summary has been requested."""
        self.summary: Callable[[ModelRequest], ModelReply] = self.write
        self._answer = answer or (lambda request: (Text(f"Noted: {newest(request)[:40]}"),))

    async def ask(self, request: ModelRequest) -> Stream:
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
        yield ModelReply(parts=parts, model="m", finish="stop", usage=usage)

    def write(self, request: ModelRequest) -> ModelReply:
        """A summary that contains only the length of its input."""
        return wrote(f"They talked; {len(request.messages[0].text)} letters of it.", tokens_in=tokens(request))

    def compacting(
        self,
        *,
        models: tuple[str, ...] = ("m",),
        keep_last: int = 8,
        on_failure: str = "digest",
        timeout: float = 30,
        window: int | None = None,
    ) -> CompactionSettings:
        author = SummaryAuthor(models, self.ask, lambda model: self.window, timeout, on_failure)  # type: ignore[arg-type]
        return CompactionSettings(window or self.window, 0.75, keep_last, author)


def wrote(text: str, *, finish: str = "stop", tokens_in: int = 0) -> ModelReply:
    return ModelReply(parts=(Text(text),), model="m", finish=finish, usage=Usage(tokens_in=tokens_in, tokens_out=10))


def newest(request: ModelRequest) -> str:
    """The newest user message, without a summary in the same role before it."""
    return next((message.text for message in reversed(request.messages) if message.role == "user"), "")
