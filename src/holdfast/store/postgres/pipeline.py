"""Statements on one connection that are sent together and answered together.

psycopg's own pipelines send each statement separately: the server wakes up for each, and psycopg creates a cursor for
each. An append took five times as long that way. This pipeline uses libpq directly (`psycopg.pq`): statements wait in
libpq's buffer until a result is needed, and are sent together. Each statement is prepared once per connection. psycopg
converts the rows to Python values.
"""

import select
from collections import deque
from collections.abc import Mapping, Sequence
from typing import cast

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.store import queries
from holdfast.store.database import Row, Value
from holdfast.store.postgres.connection import Link, named

Parameter = Value | list[str]
Statement = tuple[str, tuple[int, ...]]
"""A named query, and the types of its parameters."""
Due = Statement | bool | None
"""What a pending result belongs to: a prepare, a statement (None), or the end of a batch (True)."""
SYNC = True

GUESSED, INT8, FLOAT8 = 0, 20, 701
"""PostgreSQL's type numbers; 0 lets the server infer the type from the column."""


class Pipeline:
    """For one thread. Between `begin` and the end of a transaction nothing else may use the connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._pgconn = link.pgconn
        self._rows = Transformer(link)
        self._queries = queries.numbered()
        self._prepared: dict[Statement, bytes] = {}
        self._count = 0
        self._due: deque[Due] = deque()
        self.has_waited = False
        """Whether results of this transaction have been received."""
        [(self.pid,)] = link.execute(named("driver.get_backend_pid")).fetchall()
        """The pid of the server process. A pooler would give its clients another number."""

    def begin(self, query: str) -> None:
        """Begin a transaction. Nothing is sent before a result is needed."""
        if self._due:
            self._drain()
        else:
            self._pgconn.enter_pipeline_mode()
        self.has_waited = False
        self._send_unprepared(query, {})

    def send(self, query: str, params: Mapping[str, Parameter] | None = None) -> None:
        """Queue the statement. If it fails, the next call that waits for a result raises."""
        sql, names = self._queries[query]
        values, kinds = _encode(names, params or {})
        statement = query, kinds
        name = self._prepared.get(statement) or self._prepare(statement, sql)
        self._pgconn.send_query_prepared(name, values)
        self._due.append(None)

    def fetch(self, query: str, params: Mapping[str, Parameter] | None = None) -> list[Row]:
        """Run the query; returns its rows."""
        self.send(query, params)
        return self._wait_for_rows()

    def fetch_all(self, asked: Sequence[tuple[str, Mapping[str, Parameter]]]) -> list[list[Row]]:
        """Run the queries, which are sent together; returns the rows of each."""
        for query, params in asked:
            self.send(query, params)
        self._mark_end()
        results: list[PGresult] = []
        self._collect(results)
        return [self._load(result) for result in results[-len(asked) :]]

    def fetch_unprepared(self, query: str, params: Mapping[str, Parameter]) -> list[Row]:
        """Like `fetch`, without preparing it: the server plans it for these values."""
        self._send_unprepared(query, params)
        return self._wait_for_rows()

    def _wait_for_rows(self) -> list[Row]:
        result = self.sync()
        assert result is not None
        return self._load(result)

    def _load(self, result: PGresult) -> list[Row]:
        self._rows.set_pgresult(result)
        return cast("list[Row]", self._rows.load_rows(0, result.ntuples, tuple))

    def count(self, query: str, params: Mapping[str, Parameter] | None = None) -> int:
        """Run the statement; returns the number of changed rows."""
        self.send(query, params)
        result = self.sync()
        assert result is not None
        return result.command_tuples or 0

    def sync(self) -> PGresult | None:
        """Wait until all queued statements are done; returns the last result. Raises the first error.

        A flush would suffice, but the server would then count the connection as busy, and a worker that is stopped or cut
        off at this moment would keep its locks forever. After the end of a batch it counts as idle, which has a time limit.
        """
        self._mark_end()
        return self._collect()

    def end(self, query: str) -> None:
        """End the transaction, and wait until it has ended."""
        self._send_unprepared(query, {})
        self._mark_end()
        self._collect()
        self._pgconn.exit_pipeline_mode()

    def end_without_waiting(self, query: str) -> None:
        """End a read transaction without waiting: the result is read when the next one begins."""
        if self._due:
            return self.end(query)
        self._send_unprepared(query, {})
        self._mark_end()
        return self._flush()

    def collect_pending(self) -> None:
        """Read pending results, so that the connection can be used without the pipeline."""
        if self._due:
            self._drain()
            self._pgconn.exit_pipeline_mode()

    def roll_back(self) -> None:
        """Roll back, whatever the state of the transaction. If that fails, the connection is closed."""
        try:
            self._mark_end()
            self._drain()
            self._send_unprepared("driver.rollback", {})
            self._mark_end()
            self._collect()
            self._pgconn.exit_pipeline_mode()
        except BaseException:
            self._due.clear()
            self.link.close()
            raise

    def _send_unprepared(self, query: str, params: Mapping[str, Parameter]) -> None:
        sql, names = self._queries[query]
        values, kinds = _encode(names, params)
        self._pgconn.send_query_params(sql, values, kinds)
        self._due.append(None)

    def _prepare(self, statement: Statement, sql: bytes) -> bytes:
        self._count += 1
        name = self._prepared[statement] = b"holdfast_%d" % self._count
        self._pgconn.send_prepare(name, sql, statement[1])
        self._due.append(statement)
        return name

    def _mark_end(self) -> None:
        """Mark the end of a batch: after an error, the server ignores statements up to this point."""
        self._pgconn.pipeline_sync()
        self._due.append(SYNC)

    def _drain(self) -> None:
        """Read all pending results and ignore errors of statements."""
        while self._due:
            try:
                self._collect()
            except psycopg.Error:
                if self._pgconn.status == ConnStatus.BAD:
                    raise

    def _collect(self, results: list[PGresult] | None = None) -> PGresult | None:
        """Read all pending results; returns the result of the last statement, or raises the first error.

        The results of all statements are added to `results`.
        """
        self.has_waited = True
        self._flush()
        failed: psycopg.Error | None = None
        result: PGresult | None = None
        while self._due:
            due = self._due.popleft()
            answer = self._next()
            if due is not SYNC:
                result = answer
                self._skip_end()
                if due is None and results is not None:
                    results.append(answer)
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
            raise psycopg.OperationalError("the connection was lost: a result is missing")
        return result

    def _skip_end(self) -> None:
        """libpq returns a null result after the result of each statement."""
        extra = self._get_result()
        assert extra is None, "a statement has one result"

    def _get_result(self) -> PGresult | None:
        while self._pgconn.is_busy():
            _wait(self._pgconn.socket, select.POLLIN)
            self._pgconn.consume_input()
        return self._pgconn.get_result()

    def _flush(self) -> None:
        """Send everything and read meanwhile, because the server may wait for that."""
        while self._pgconn.flush():
            if _wait(self._pgconn.socket, select.POLLIN | select.POLLOUT) & select.POLLIN:
                self._pgconn.consume_input()

    def _error(self, result: PGresult) -> psycopg.Error:
        if result.status == ExecStatus.PIPELINE_ABORTED:
            return psycopg.errors.PipelineAborted("an earlier statement failed")
        error = error_from_result(result)
        if error.sqlstate is None and self._pgconn.status == ConnStatus.BAD:
            return psycopg.OperationalError(str(error))
        return error


def _wait(socket: int, for_what: int) -> int:
    poll = select.poll()
    poll.register(socket, for_what)
    return poll.poll()[0][1]


def _encode(names: Sequence[str], params: Mapping[str, Parameter]) -> tuple[list[bytes | None], tuple[int, ...]]:
    """The values of the parameters in the format of PostgreSQL, and their types."""
    values: list[bytes | None] = []
    kinds: list[int] = []
    for name in names:
        value = params[name]
        if isinstance(value, str):
            kinds.append(GUESSED)
            values.append(_text(value))
        elif isinstance(value, int):
            kinds.append(INT8)
            values.append(b"%d" % value)
        else:
            kinds.append(FLOAT8 if isinstance(value, float) else GUESSED)
            values.append(_encode_rare(value))
    return values, tuple(kinds)


def _encode_rare(value: float | list[str] | None) -> bytes | None:
    match value:
        case None:
            return None
        case list():
            return _text("{" + ",".join(map(_quoted, value)) + "}")
        case _:
            return str(value).encode()


def _text(value: str) -> bytes:
    if "\0" in value:
        raise psycopg.DataError("PostgreSQL text cannot contain NUL (0x00)")
    return value.encode()


def _quoted(text: str) -> str:
    """An element of an array literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
