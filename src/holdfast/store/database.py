"""The port: a database is something that runs plain functions of a transaction."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Value = str | int | float | None
Row = tuple[Value, ...]


class Transaction(Protocol):
    """Runs named queries (`log.held` is the query `held` of `sql/log.sql`) inside one transaction."""

    def one(self, query: str, **params: Value) -> Row | None:
        """The first row, or None."""

    def all(self, query: str, **params: Value) -> list[Row]:
        """Every row."""

    def run(self, query: str, **params: Value) -> None:
        """Do it. If it fails, that may show only with the next statement that is answered, or at the end."""

    def count(self, query: str, **params: Value) -> int:
        """Do it; how many rows changed."""

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        """Do it once for each set of parameters."""

    def notify(self, topic: str) -> None:
        """Wake those who listen to the topic, once this transaction is committed and only then."""


class Database(Protocol):
    """One store, opened. All methods may be called from many tasks at once."""

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(tx, …)` in one transaction of its own and return what it returns.

        Returns only when the effects would survive a power cut. If `work` raises, nothing it did
        remains and nobody else's work is touched. It may share a commit with others, and may be run
        again after a failed commit: it must have no effect but on the transaction. Waits while too
        many writes are under way. Cancelling the wait does not tell whether the write took place.
        Raises NotSaved if the effects could not be made durable, Unavailable if the store is locked,
        AssertionError if the work breaks a constraint: that is a bug.
        """

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `write`, for a thread that is not the event loop's: it blocks, and works while the loop is busy."""

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work(tx, …)` on one consistent snapshot, which holds every write acknowledged before; writing there raises."""

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        """Yield once at the start and then whenever the topic may have news, also from other processes.

        A wake-up is a hint: several may be folded into one, and some come for nothing.
        """

    async def close(self) -> None:
        """Finish the writes under way, refuse new ones, and let go of the files. May be called twice."""
