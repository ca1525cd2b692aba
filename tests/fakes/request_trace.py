"""Traces one request through the program: the files whose functions it calls, and the SQL statements it runs.

A context variable marks the request and all tasks that it starts, so that background tasks are left out. Threads of the
store have no context: every call there counts. A background task that uses the store meanwhile is noticed (`is_clean`).
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast
from holdfast.store.database import Transaction
from holdfast.store.sqlite.driver import SqliteDatabase
from holdfast.supervisor import Completed, Supervisor

SRC = f"{Path(holdfast.__file__).parent}/"
NEW_CALL = 0
"""The argument of a RESUME instruction at the start of a function; that of a coroutine which continues is another."""


class RequestTrace:
    """What one request did."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        """The file and the function of each call, in order."""
        self.transactions: list[list[tuple[str, str]]] = []
        """The statements of each transaction, with their parameters."""
        self.is_clean = True

    @property
    def files(self) -> list[str]:
        """Each file once, in the order in which the request first reaches it."""
        return list(dict.fromkeys(file for file, _ in self.calls))

    @property
    def statements(self) -> list[str]:
        return [query for transaction in self.transactions for query, _ in transaction]

    @property
    def functions(self) -> int:
        return len(set(self.calls))

    @property
    def file_changes(self) -> int:
        """How often a call went to another file than the call before it."""
        return sum(one != other for (one, _), (other, _) in pairwise(self.calls))


class Tracer:
    """Open the store inside `installed`: only threads that start after it are traced."""

    def __init__(self) -> None:
        self._request: ContextVar[bool] = ContextVar("request", default=False)
        self._main = threading.get_ident()
        self._trace: RequestTrace | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def record(self) -> Iterator[RequestTrace]:
        """Trace what the block does, in this task and in those that it starts."""
        trace = self._trace = RequestTrace()
        token = self._request.set(True)
        sys.setprofile(self._note)
        try:
            yield trace
        finally:
            sys.setprofile(None)
            self._request.reset(token)
            self._trace = None

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        trace, code = self._trace, frame.f_code
        if trace is None or event != "call" or not code.co_filename.startswith(SRC):
            return
        if code.co_code[frame.f_lasti + 1] == NEW_CALL and not self._is_background():
            trace.calls.append((code.co_filename.removeprefix(SRC), code.co_qualname))

    def _is_background(self) -> bool:
        """Whether a background task makes the call. A callback of the event loop brings an answer of the store."""
        if threading.get_ident() != self._main or self._request.get():
            return False
        return asyncio.current_task() is not None

    def begin(self) -> list[tuple[str, str]]:
        """Where the statements of a transaction that begins now are recorded."""
        statements: list[tuple[str, str]] = []
        if self._trace is not None:
            self._trace.transactions.append(statements)
            self._trace.is_clean = self._trace.is_clean and self._request.get()
        return statements


class _RecordingTransaction:
    """Passes every statement through and records it."""

    def __init__(self, inner: Transaction, statements: list[tuple[str, str]]) -> None:
        self._inner = inner
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name == "notify":
            return call

        def recorded(query: str, *args: Any, **params: Any) -> Any:
            self._statements.append((query, repr((args, params))))
            return call(query, *args, **params)

        return recorded


class TracedDatabase(SqliteDatabase):
    """A SQLite store whose statements the tracer counts. The file must exist."""

    def __init__(self, path: Path, tracer: Tracer, supervisor: Supervisor) -> None:
        super().__init__(path, supervisor=supervisor)
        self._tracer = tracer

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await super().write(self._recorded(work), *args, **kwargs)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await super().read(self._recorded(work), *args, **kwargs)

    async def _poll(self, completed: Completed) -> None:
        """Do not poll: no other process writes to this store, and a poll at the wrong moment would make a task read it again."""
        completed()
        await asyncio.Event().wait()

    def _recorded(self, work: Callable[..., Any]) -> Callable[..., Any]:
        statements = self._tracer.begin()

        def recorded(tx: Transaction, *args: Any, **kwargs: Any) -> Any:
            statements.clear()  # the store may run it twice
            return work(_RecordingTransaction(tx, statements), *args, **kwargs)

        return recorded
