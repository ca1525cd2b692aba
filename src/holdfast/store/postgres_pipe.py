"""Statements on one connection that are sent together and answered together.

psycopg has pipelines of its own, which send each statement by itself: the server wakes up, answers and sleeps again for
each of them, and a cursor is made for each here. An append took five times as long that way. This one speaks to
libpq directly (`psycopg.pq`): what is told waits in libpq's buffer until something is asked, and goes out with it in one
piece. Each statement is prepared once on a connection. Rows become Python's values by psycopg's own means.
"""

import select
from collections import deque
from collections.abc import Mapping
from typing import cast

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.store import queries
from holdfast.store.database import Row, Value
from holdfast.store.postgres_connection import Link, named

Parameter = Value | list[str]
Statement = tuple[str, tuple[int, ...]]
"""A named query, and the types of the values it is given."""
Due = Statement | bool | None
"""What an answer is due to: a statement that is being prepared, one that was told, or (True) the end of a batch."""
SYNC = True

GUESSED, INT8, FLOAT8 = 0, 20, 701
"""The numbers PostgreSQL has for types; the first leaves it to the server, which knows the column."""


class Pipe:
    """Belongs to one thread. Between `begin` and the end of a transaction nobody else may use the connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._pgconn = link.pgconn
        self._rows = Transformer(link)
        self._prepared: dict[Statement, bytes] = {}
        self._count = 0
        self._due: deque[Due] = deque()
        self.asked = False
        """Whether the server has answered anything in this transaction."""
        [(self.pid,)] = link.execute(named("driver.pid")).fetchall()
        """The server's process. A pooler in between tells clients another number than this."""

    def begin(self, query: str) -> None:
        """Begin a transaction. Nothing is sent before something is asked."""
        if self._due:
            self._drain()
        else:
            self._pgconn.enter_pipeline_mode()
        self.asked = False
        self._tell_once(query, {})

    def tell(self, query: str, params: Mapping[str, Parameter] | None = None) -> None:
        """Do it, after all that was told before. If it fails, the next question, or the end, raises."""
        given = params or {}
        sql, names = queries.numbered()[query]
        values = [given[name] for name in names]
        statement = query, tuple(map(_kind, values))
        name = self._prepared.get(statement) or self._prepare(statement, sql)
        self._pgconn.send_query_prepared(name, [_encoded(value) for value in values])
        self._due.append(None)

    def ask(self, query: str, params: Mapping[str, Parameter] | None = None) -> list[Row]:
        """Do it; its rows."""
        self.tell(query, params)
        return self._answered()

    def ask_once(self, query: str, params: Mapping[str, Parameter]) -> list[Row]:
        """As `ask`, without preparing it: the server plans it for just these values."""
        self._tell_once(query, params)
        return self._answered()

    def _answered(self) -> list[Row]:
        result = self.catch_up()
        assert result is not None
        self._rows.set_pgresult(result)
        return cast("list[Row]", self._rows.load_rows(0, result.ntuples, tuple))

    def count(self, query: str, params: Mapping[str, Parameter] | None = None) -> int:
        """Do it; how many rows it changed."""
        self.tell(query, params)
        result = self.catch_up()
        assert result is not None
        return result.command_tuples or 0

    def catch_up(self) -> PGresult | None:
        """Wait until all that was told is done; the last answer. Raises the first error among them.

        A request to flush would do. But then the server takes us for busy, and a worker that is stopped or cut off just
        now would keep its locks for ever; behind the end of a batch we count as idle, and that has a limit.
        """
        self._sync()
        return self._collect()

    def end(self, query: str) -> None:
        """End the transaction, and wait until it has ended."""
        self._tell_once(query, {})
        self._sync()
        self._collect()
        self._pgconn.exit_pipeline_mode()

    def leave(self, query: str) -> None:
        """End a transaction that has only asked, and do not wait: the answer is looked at when the next one begins."""
        if self._due:
            return self.end(query)
        self._tell_once(query, {})
        self._sync()
        return self._flush()

    def rest(self) -> None:
        """Look at what was left, so that the connection can be used by other means."""
        if self._due:
            self._drain()
            self._pgconn.exit_pipeline_mode()

    def abandon(self) -> None:
        """Roll back whatever state the transaction is in. A connection on which that fails is closed."""
        try:
            self._sync()
            self._drain()
            self._tell_once("driver.rollback", {})
            self._sync()
            self._collect()
            self._pgconn.exit_pipeline_mode()
        except BaseException:
            self._due.clear()
            self.link.close()
            raise

    def _tell_once(self, query: str, params: Mapping[str, Parameter]) -> None:
        sql, names = queries.numbered()[query]
        values = [params[name] for name in names]
        self._pgconn.send_query_params(sql, [_encoded(value) for value in values], list(map(_kind, values)))
        self._due.append(None)

    def _prepare(self, statement: Statement, sql: bytes) -> bytes:
        self._count += 1
        name = self._prepared[statement] = b"holdfast_%d" % self._count
        self._pgconn.send_prepare(name, sql, statement[1])
        self._due.append(statement)
        return name

    def _sync(self) -> None:
        """The end of a batch: behind an error, the server takes nothing up again before this."""
        self._pgconn.pipeline_sync()
        self._due.append(SYNC)

    def _drain(self) -> None:
        """Collect what is due, of which some may have failed."""
        while self._due:
            try:
                self._collect()
            except psycopg.Error:
                if self._pgconn.status == ConnStatus.BAD:
                    raise

    def _collect(self) -> PGresult | None:
        """The answers to all that is due; that of the last statement or, when all have come, the first error."""
        self.asked = True
        self._flush()
        failed: psycopg.Error | None = None
        result: PGresult | None = None
        while self._due:
            due = self._due.popleft()
            answer = self._next()
            if due is not SYNC:
                result = answer
                self._skip_end()
            if answer.status in (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED):
                failed = failed or self._error(answer)
                if isinstance(due, tuple):
                    self._prepared.pop(due, None)
        if failed is not None:
            raise failed
        return result

    def _next(self) -> PGresult:
        result = self._get_result()
        if result is None:
            raise psycopg.OperationalError("the connection was lost: an answer is missing")
        return result

    def _skip_end(self) -> None:
        """Behind the answer to each statement libpq puts a nothing."""
        extra = self._get_result()
        assert extra is None, "a statement has one answer"

    def _get_result(self) -> PGresult | None:
        while self._pgconn.is_busy():
            _wait(self._pgconn.socket, select.POLLIN)
            self._pgconn.consume_input()
        return self._pgconn.get_result()

    def _flush(self) -> None:
        """Send all, and take in what comes meanwhile: the server may wait for us to do so."""
        while self._pgconn.flush():
            if _wait(self._pgconn.socket, select.POLLIN | select.POLLOUT) & select.POLLIN:
                self._pgconn.consume_input()

    def _error(self, result: PGresult) -> psycopg.Error:
        if result.status == ExecStatus.PIPELINE_ABORTED:
            return psycopg.errors.PipelineAborted("a statement before it failed")
        error = error_from_result(result)
        if error.sqlstate is None and self._pgconn.status == ConnStatus.BAD:
            return psycopg.OperationalError(str(error))
        return error


def _wait(socket: int, for_what: int) -> int:
    poll = select.poll()
    poll.register(socket, for_what)
    return poll.poll()[0][1]


def _kind(value: Parameter) -> int:
    if isinstance(value, int):
        return INT8
    return FLOAT8 if isinstance(value, float) else GUESSED


def _encoded(value: Parameter) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            if "\0" in value:
                raise psycopg.DataError("PostgreSQL's texts cannot hold NUL (0x00)")
            return value.encode()
        case list():
            return _encoded("{" + ",".join(map(_quoted, value)) + "}")
        case _:
            return str(value + 0).encode()


def _quoted(text: str) -> str:
    """An element of a list, as the server reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
