"""The call for which a server asks something: a question to the person, a completion, the directories.

Servers of the protocol before 2026 send such requests over the shared connection. Over HTTP the library runs them in the
context of the call whose answer carries them. A child process gives no hint: there the request belongs to the only
session that has a call in progress, and is refused if there are several, so that no session sees another one's question.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

from msgspec import structs

from holdfast.model.tool import CallAnswer, CallQuestion, Completion, CompletionRequest, ToolContext

MAX_QUESTIONS = 50
"""Questions and completions of one call; a server that asks for more is refused."""
REPORT_SECONDS = 1.0
"""The shortest time between two reports of a call's progress."""
MAX_REPORTS = 1_000

_current: ContextVar["RunningCall | None"] = ContextVar("mcp_call", default=None)


class RunningCall:
    """One call in progress. Its time limit does not run while it waits for the person or the model."""

    def __init__(self, context: ToolContext, seconds: float) -> None:
        self.context = context
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._waiting = 0
        self._asked = 0
        self._round = ""
        self._keys: Counter[str] = Counter()
        self._reported_at = 0.0
        self._reports = 0

    @contextlib.asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Raise TimeoutError if the block takes too long."""
        try:
            async with asyncio.timeout(self._seconds) as self._timeout:
                yield
        except TimeoutError as e:
            raise TimeoutError(f"no answer within {self._seconds:g} s") from e

    def begin_round(self, name: str) -> None:
        """Distinguish the questions that follow from equal ones before."""
        self._round = name
        self._keys.clear()

    async def ask(self, question: CallQuestion) -> CallAnswer | None:
        """What the person answers; None if nobody can be asked."""
        if self.context.host is None or not self._may_ask():
            return None
        with self._paused():
            return await self.context.host.ask(structs.replace(question, key=self._key(question.key)))

    async def complete(self, request: CompletionRequest) -> Completion | None:
        """What the model replies; None if the person refuses or nobody can be asked."""
        if self.context.host is None or not self._may_ask():
            return None
        with self._paused():
            return await self.context.host.complete(structs.replace(request, key=self._key(request.key)))

    async def checkpoint(self, state: str) -> None:
        """Commit how another worker can continue the call; an empty text if it no longer can."""
        if self.context.host is not None:
            await self.context.host.checkpoint(state)

    def _key(self, key: str) -> str:
        """The key of a question: the same for a worker that continues the call, another one if it is asked again."""
        self._keys[key] += 1
        return f"{self._round}{key}-{self._keys[key]}"

    def report(self, text: str) -> None:
        """Show the progress, at most once a second."""
        now = asyncio.get_running_loop().time()
        if self.context.host is None or self._reports >= MAX_REPORTS or now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at, self._reports = now, self._reports + 1
        self.context.host.report(text)

    def _may_ask(self) -> bool:
        self._asked += 1
        return self._asked <= MAX_QUESTIONS

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        self._waiting += 1
        self._reschedule(None)
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._reschedule(asyncio.get_running_loop().time() + self._seconds)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


class RunningCalls:
    """The calls in progress of one connection."""

    def __init__(self) -> None:
        self._calls: list[RunningCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    @contextlib.contextmanager
    def running(self, call: RunningCall) -> Iterator[None]:
        self._calls.append(call)
        token = _current.set(call)
        try:
            yield
        finally:
            _current.reset(token)
            self._calls.remove(call)

    def find(self) -> RunningCall | None:
        """The call that the request of the server belongs to; None if that is not certain."""
        if (found := _current.get()) in self._calls:
            return found
        sessions = {call.context.session_id for call in self._calls}
        return self._calls[0] if len(sessions) == 1 else None
