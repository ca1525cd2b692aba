"""Reads a session from the store in pages."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.engine.turn.session_reader import read_session
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite
from tests.fakes.counting import CountingDatabase


class RepeatingDatabase(CountingDatabase):
    """Repeats its first read after the log has grown, as the PostgreSQL driver does if a connection breaks."""

    def __init__(self, inner: SqliteDatabase, grow: Callable[[], Any]) -> None:
        super().__init__(inner)
        self._grow: Callable[[], Any] | None = grow

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._grow is not None:
            grow, self._grow = self._grow, None
            await super().read(work, *args, **kwargs)
            await grow()
        return await super().read(work, *args, **kwargs)


def messages(count: int) -> list[UserSaid]:
    return [UserSaid(turn_id="turn-1", parts=(Text(str(number)),)) for number in range(count)]


async def test_a_repeated_read_leaves_no_gap(tmp_path: Path) -> None:
    database = await open_sqlite(tmp_path / "holdfast.db")
    await database.write(sessions.create, "hf-1", SessionOpened(source="api"), at=1)
    await database.write(log.append_unheld, "hf-1", messages(50), at=2)

    repeating = RepeatingDatabase(database, lambda: database.write(log.append_unheld, "hf-1", messages(210), at=3))
    read = await read_session(repeating, "hf-1")

    seqs = [message.seq for message in read.context.messages]
    assert len(seqs) == 260
    assert all(after == before + 1 for before, after in pairwise(seqs))
    assert read.head.seq == read.seen == 261
    await database.close()
