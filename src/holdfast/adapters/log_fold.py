"""State that is derived from the items of one session, kept in memory and brought up to date from the log at each use."""

from collections.abc import Callable
from typing import cast

from holdfast.adapters.framework_session import Written
from holdfast.model.entry import decode
from holdfast.model.event import KIND_OF, ItemAdded, Rewound
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.repos.log import EventRow, LogHead

ITEM, REWOUND = KIND_OF[ItemAdded], KIND_OF[Rewound]


class LogFold:
    """Reads only what was added since the last call, and nothing that this process has written itself. Not thread-safe.

    It starts again if the events that it has read are no longer in the log: they were of a write that was rolled back. It
    also starts again, without what was taken back, after a rewind.
    """

    def __init__(self) -> None:
        self._head = self.verified = LogHead("", 0, "")
        """Up to `verified`, this process has verified every event."""

    def catch_up(self, tx: Transaction, session: Session) -> None:
        """Apply every event of the log that was not applied before, including those of this transaction. Raises Corrupt."""
        if self._head == LogHead.of(session):
            return
        if session.id != self._head.session_id:
            self._start(session.id)
        first = max(1, self._head.seq)
        rows = log.read_verified_rows(tx, session.id, first=first)
        if self._head.seq and (not rows or rows[0][3] != self._head.hash):
            self._start(session.id)
            first, rows = 1, log.read_verified_rows(tx, session.id)
        if any(row[1] == REWOUND and row[0] > self._head.seq for row in rows):
            self._start(session.id)
            first, rows = 1, _without_rewound(log.read_verified_rows(tx, session.id))
        for seq, kind, _, hash_, body in rows:
            if seq > self._head.seq:
                if kind == ITEM:
                    self.apply(seq, cast("ItemAdded", decode(kind, body)))
                self._head = LogHead(session.id, seq, hash_)
        if first <= self.verified.seq + 1:
            self.verified = self._head

    def note_written(self, written: Written | None, apply: Callable[[], None] | None = None) -> None:
        """Apply the events of a committed write without reading them, if nothing else was written since the last call.

        `apply` applies them all at once.
        """
        if written is None or written.before != self._head:
            return
        if apply is not None:
            apply()
            self._head = written.after
        elif all(type(event) is ItemAdded for event in written.events):
            for seq, event in enumerate(written.events, written.before.seq + 1):
                self.apply(seq, cast("ItemAdded", event))
            self._head = written.after

    def note_verified(self, head: LogHead) -> None:
        """Up to here, the events of the session have been verified meanwhile."""
        if head.session_id == self.verified.session_id and head.seq > self.verified.seq:
            self.verified = head

    def _start(self, session_id: str) -> None:
        self._head = self.verified = LogHead(session_id, 0, "")
        self.clear()

    def clear(self) -> None:
        """Forget everything."""

    def apply(self, seq: int, event: ItemAdded) -> None:
        """Apply one item."""


def _without_rewound(rows: list[EventRow]) -> list[EventRow]:
    """The events of the session as it is now: a rewind takes back what is between it and the event that it names."""
    kept: list[EventRow] = []
    for row in rows:
        if row[1] == REWOUND:
            to_seq = cast("Rewound", decode(row[1], row[4])).to_seq
            while kept and kept[-1][0] > to_seq:
                kept.pop()
        kept.append(row)
    return kept


class KeyIndex(LogFold):
    """Which keys the items of a session have, and in which event."""

    def __init__(self) -> None:
        super().__init__()
        self.seqs: dict[str, int] = {}

    def clear(self) -> None:
        self.seqs.clear()

    def apply(self, seq: int, event: ItemAdded) -> None:
        if event.key:
            self.seqs.setdefault(event.key, seq)
