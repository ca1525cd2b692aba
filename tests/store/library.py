"""A store with text to search."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from holdfast.model.event import Event, SessionOpened, UserSaid
from holdfast.model.ids import SESSION, Ids
from holdfast.model.message import Text
from holdfast.store.database import Database, Row, Transaction, Value
from holdfast.store.repos import log, session_pruning, sessions
from tests.fakes.clock import FakeClock

P = ParamSpec("P")
T = TypeVar("T")


def words(text: str) -> UserSaid:
    return UserSaid(turn_id="turn-1", parts=(Text(text),))


class Library:
    """Opens sessions and adds messages, each as a separate event."""

    def __init__(self, database: Database, ids: Ids, clock: FakeClock) -> None:
        self.database = database
        self._ids = ids
        self._clock = clock

    async def open(self, **opened: str) -> str:
        """The id of a new session."""
        session_id = self._ids.make(SESSION)
        await self.database.write(
            sessions.create, session_id, SessionOpened(source="run", **opened), at=self._clock.now()
        )
        return session_id

    async def say(self, session_id: str, *texts: str) -> None:
        await self.add(session_id, *map(words, texts))

    async def add(self, session_id: str, *events: Event) -> None:
        self._clock.pass_seconds(1)
        await self.database.write(log.append_unheld, session_id, events, at=self._clock.now())

    async def trash(self, session_id: str) -> None:
        self._clock.pass_seconds(1)
        await self.database.write(sessions.trash, session_id, at=self._clock.now())

    async def restore(self, session_id: str) -> None:
        await self.database.write(sessions.restore, session_id, at=self._clock.now())

    async def prune(self, session_id: str) -> None:
        """Delete it permanently, through the trash."""
        await self.trash(session_id)
        assert await self.database.write(session_pruning.prune, session_id, before=self._clock.now() + 1)


class CountedTransaction:
    """Passes queries on and counts the events that were read."""

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.events = 0

    def one(self, query: str, **params: Value) -> Row | None:
        row = self._inner.one(query, **params)
        self.events += query in ("log.get_at_position", "log.list_after_position") and row is not None
        return row

    def all(self, query: str, **params: Value) -> list[Row]:
        rows = self._inner.all(query, **params)
        self.events += len(rows) if query.startswith("log.") else 0
        return rows

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class CountedDatabase:
    """A store that counts the events read from it."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.events = 0

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def counted(tx: Transaction) -> tuple[T, int]:
            transaction = CountedTransaction(tx)
            return work(transaction, *args, **kwargs), transaction.events  # type: ignore[arg-type] # the rest is passed on

        result, events = await self._inner.read(counted)
        self.events += events
        return result

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
