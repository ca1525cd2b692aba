"""Detects that a server that no longer answers was replaced by another one.

A broken connection is detected anyway. But a server whose machine or disk hangs, or a proxy in front of it, keeps the
connection open without answering, and callers would wait forever although another server has taken over. So when a caller
has waited for a while, a new connection is opened. If it leads to another server, or to one that does not know the old
connection, the old one is broken, and its work is retried as after any disconnect. If no server answers, the caller waits.
"""

import logging
import threading
from collections.abc import Callable, Sequence

import psycopg

from holdfast.store.postgres.connection import Link, named
from holdfast.store.postgres.retrying_connection import RetryingConnection
from holdfast.supervisor import TaskReport

log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
LONG_SECONDS = 10.0
"""How long a result may take before the server is checked."""


class ConnectionWatch:
    """A thread that watches the connections of a store. It calls `on_replaced` when it has broken one."""

    def __init__(
        self,
        connect: Callable[[], Link],
        lines: Callable[[], Sequence[RetryingConnection]],
        on_replaced: Callable[[], object],
        report: TaskReport,
    ) -> None:
        self._report = report
        self._connect = connect
        self._lines = lines
        self._on_replaced = on_replaced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="holdfast-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                waiting = [line for line in self._lines() if line.is_waiting_longer_than(LONG_SECONDS)]
                if waiting:
                    self._check_server(waiting)
                self._report.completed()
            except Exception as e:  # noqa: BLE001 - the report logs and shows it; the thread continues
                self._report.failed(e)

    def _check_server(self, waiting: Sequence[RetryingConnection]) -> None:
        try:
            with self._connect() as link:
                place = link.info.host, link.info.port
                known = {row[0] for row in link.execute(named("driver.list_backends"))}
        except psycopg.Error as e:
            log.info("no other server answers for the store: %s", e)
            return
        broken = [line for line in waiting if line.break_unless_connected_to(place, known)]
        if broken:
            log.warning("the store is now at %s:%s; closed %d connections to the old server", *place, len(broken))
            self._on_replaced()
