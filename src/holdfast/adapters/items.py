"""Items of a framework as events: JSON text without loss, read back newest or oldest first."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from holdfast.model.entry import decode, decode_many
from holdfast.model.errors import Corrupt, Invalid
from holdfast.model.event import KIND_OF, Event, ItemAdded, Rewound
from holdfast.model.message import Role
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.repos.log import EventRow, LogHead

PAGE = 256
ITEM, REWOUND = KIND_OF[ItemAdded], KIND_OF[Rewound]
MAX_ITEM_BYTES = 64 * 1024 * 1024
"""Far more than any message; a larger one is probably a mistake."""
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, skipkeys=True, default=lambda _: None)


class StoredItem(msgspec.Struct, frozen=True):
    """An item and the number of its event."""

    seq: int
    event: ItemAdded


class ItemReader:
    """Reads the items of one session. It verifies each event by its hash once, and later only new ones. Thread-safe."""

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter
        self._known: LogHead | None = None

    def read(self, tx: Transaction, session: Session | None, limit: int | None = None) -> list[StoredItem]:
        """The newest items, all of them without a limit, oldest first; without those that were taken back. Raises Corrupt."""
        if session is None:
            return []
        page = session.seq if limit is None else PAGE
        found = list(islice(self.newest_first(tx, session, page), limit))
        found.reverse()
        return found

    def undo_all(self, tx: Transaction, session: Session) -> Sequence[Event]:
        """The events that take back all items."""
        found = self.read(tx, session)
        return [Rewound(to_seq=found[0].seq - 1)] if found else []

    def newest_first(self, tx: Transaction, session: Session, page: int = PAGE) -> Iterator[StoredItem]:
        """Read backwards and skip what a rewind took back, so that the newest items cost the same behind any history."""
        upto = skipped_to = session.seq
        while upto > 0:
            first = max(1, upto - page + 1)
            rows = self._rows(tx, session, first, upto)
            events = decode_rows(rows) if page > PAGE else {}
            for seq, kind, _, _, body in reversed(rows):
                if seq > skipped_to:
                    continue
                if kind == REWOUND:
                    skipped_to = cast("Rewound", decode(kind, body)).to_seq
                elif kind == ITEM:
                    event = events.get(seq) or cast("ItemAdded", decode(kind, body))
                    if event.adapter == self._adapter:
                        yield StoredItem(seq, event)
            upto = min(first - 1, skipped_to)

    def _rows(self, tx: Transaction, session: Session, first: int, last: int) -> list[EventRow]:
        rows = log.read_verified_rows(tx, session.id, last, first=first, known=self._known)
        if last == session.seq:
            if not rows or rows[-1][3] != session.hash:
                raise Corrupt(f"session {session.id}: event {session.seq}, its last one, is missing or was changed")
            if first == 1:
                self._known = LogHead(session.id, session.seq, session.hash)
        return rows


def decode_rows(rows: Sequence[EventRow]) -> dict[int, ItemAdded]:
    """The items among the events, by their numbers."""
    items = [row for row in rows if row[1] == ITEM]
    events = cast("list[ItemAdded]", decode_many(ITEM, [row[4] for row in items]))
    return {row[0]: event for row, event in zip(items, events, strict=True)}


def read_item_at(tx: Transaction, session_id: str, seq: int) -> ItemAdded:
    """The item of one event."""
    [entry] = log.read(tx, session_id, first=seq, last=seq)
    return cast("ItemAdded", entry.event)


def encode_item(adapter: str, item: object, *, role: Role | None = None, key: str = "") -> ItemAdded:
    """The event of an item. Raises Invalid, with the reason, for what JSON cannot represent."""
    try:
        text = _json.encode(item)
    except (TypeError, ValueError, RecursionError) as e:
        raise Invalid(f"an item of {adapter} is not JSON and was not saved: {e}") from e
    if len(text) > MAX_ITEM_BYTES:
        raise Invalid(f"an item of {adapter} has {len(text):,} characters; the limit is {MAX_ITEM_BYTES:,}")
    return ItemAdded(adapter=adapter, item=text, role=role, key=key)


def refuse_not_json(fields: object) -> None:
    """Raise ValueError for what Pydantic would change in JSON without notice: NaN and infinity become null."""
    _strict.encode(fields).encode("utf-8")


def decode_items(found: Sequence[StoredItem]) -> list[Any]:
    """The items as the framework wrote them."""
    try:
        return cast("list[Any]", msgspec.json.decode(f"[{','.join([one.event.item for one in found])}]"))
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return [decode_item(one.event) for one in found]


def decode_item(event: ItemAdded) -> Any:
    """The item as the framework wrote it. msgspec is faster than `json`, and rejects what it would read differently."""
    try:
        return msgspec.json.decode(event.item)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return json.loads(event.item)
