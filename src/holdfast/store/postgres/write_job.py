"""A write that waits for one of the writing threads of a PostgreSQL store."""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import CodeType
from typing import Any

from holdfast.store.database import Transaction
from holdfast.tasks import PromptFuture


class PostgresWriteJob:
    """The work, its ticket in the write order, and the future for its result."""

    __slots__ = ("answer", "code", "error", "is_solitary", "result", "runs_alone", "ticket", "topics", "work")

    def __init__(
        self,
        function: object,
        work: Callable[[Transaction], object],
        ticket: int,
        answer: PromptFuture[Any] | Future[Any],
    ) -> None:
        """`function` is what the caller passed to `write`, and `work` the same with its arguments."""
        self.code: CodeType | None = getattr(function, "__code__", None)
        """The same for all closures of one function, which are many."""
        self.work = work
        self.ticket = ticket
        self.answer = answer
        self.result: object = None
        self.error: BaseException | None = None
        self.topics: Collection[str] = ()
        self.runs_alone = False
        """Whether it could not run in its group."""
        self.is_solitary = False
        """Whether it was found to concern more than one session."""

    def settle(self) -> None:
        """Answer the caller. On the event loop."""
        if self.answer.done():  # the caller was cancelled
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)
