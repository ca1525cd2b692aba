"""The database port: runs functions inside transactions."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Unsubscribe = Callable[[], None]
Value = str | int | float | None
Row = tuple[Value, ...]


class Transaction(Protocol):
    """Runs named queries (`log.lock_held` is the query `lock_held` of `sql/log.sql`) inside one transaction."""

    def one(self, query: str, **params: Value) -> Row | None:
        """The first row, or None."""

    def all(self, query: str, **params: Value) -> list[Row]:
        """Every row."""

    def run(self, query: str, **params: Value) -> None:
        """Run the query. A failure may surface only at the next query that returns rows, or at the commit."""

    def count(self, query: str, **params: Value) -> int:
        """Run the query; returns the number of changed rows."""

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        """Run the query once for each set of parameters."""

    def notify(self, topic: str) -> None:
        """Notify listeners of the topic after this transaction has committed, and only then."""


class Database(Protocol):
    """One store, opened. All methods may be called from many tasks at once."""

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(tx, …)` in its own transaction and return its result.

        Returns only when the effects would survive a power cut. If `work` raises, its effects are rolled back, and other
        work is not affected. It may share a commit with others, and may run again after a failed commit: its only effect
        must be on the transaction. Waits while too many writes are in progress. After a cancelled wait it is unknown
        whether the write was committed. Raises NotSaved if the effects could not be made durable, Unavailable if the
        store is locked, and AssertionError if the work violates a constraint, which is a bug.
        """

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `write`, for other threads than that of the event loop: it blocks, and works while the loop is busy."""

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(tx, …)` on one consistent snapshot with every write acknowledged before; writing raises."""

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        """Call `callback` on the event loop whenever the topic may have changed, also by other processes.

        A notification is a hint: several may be coalesced, and some are spurious. The callback must not raise.
        """

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        """Yield once at the start and then after each notification of the topic. Ends when the store is closed."""

    def damage(self) -> str | None:
        """The damage found in the store, such as an unreadable page, until a later check passes."""

    async def close(self) -> None:
        """Finish pending writes, refuse new ones, and close the files. May be called twice."""


class ThreadedDatabase(Database, Protocol):
    """A database that takes work from any thread; both drivers are one."""

    def submit_write(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Like `write`, from any thread and without waiting. Do not cancel the future: the write may happen all the same."""

    def submit_read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Like `read`, from any thread and without waiting."""
