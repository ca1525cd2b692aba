"""Notices that a server which no longer answers has been replaced by another.

A line that breaks is noticed by itself. But a server whose machine or disk hangs, or a proxy before it, keeps the line up
and says nothing, and those who wait for its answer would wait for ever while another server has long taken its place. So
when somebody has waited for a while, the store is called on a new line: if that leads to another server, or to one that
knows nothing of the old line, the old one is hung up, and its work is done again as after any other break. If
nobody answers the call there is nothing better than to wait.
"""

import logging
import threading
from collections.abc import Callable, Sequence

import psycopg

from holdfast.store.postgres_connection import Link, named
from holdfast.store.postgres_line import Line

log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
LONG_SECONDS = 10.0
"""How long an answer may take before somebody looks whether there is still anybody to give it."""


class Watch:
    """A thread that looks after the lines of a store. `on_replaced` is called when one was hung up."""

    def __init__(
        self, connect: Callable[[], Link], lines: Callable[[], Sequence[Line]], on_replaced: Callable[[], object]
    ) -> None:
        self._connect = connect
        self._lines = lines
        self._on_replaced = on_replaced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="holdfast-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            waiting = [line for line in self._lines() if line.waits_for(LONG_SECONDS)]
            if waiting:
                self._look_for_another(waiting)

    def _look_for_another(self, waiting: Sequence[Line]) -> None:
        try:
            with self._connect() as link:
                place = link.info.host, link.info.port
                known = {row[0] for row in link.execute(named("driver.backends"))}
        except psycopg.Error as e:
            log.info("nobody else answers for the store: %s", e)
            return
        hung_up = [line for line in waiting if line.hang_up_unless_at(place, known)]
        if hung_up:
            log.warning("the store answers at %s:%s; %d lines to another server were hung up", *place, len(hung_up))
            self._on_replaced()
