"""Sums of usage by day, model, source and user, and by session: derived from the log, of which a position says how much is summed up.

No turn waits for them. Whoever reads them sums up the rest first (`catch_up`); a sweep does it for a server. The
part of a log that was copied from another one, in a fork or an import, does not count: this session did not spend it.
Neither do the replies in a history that a client sends.
"""

import logging
from collections.abc import Iterable
from typing import Literal, cast

import msgspec

from holdfast.model.entry import decode
from holdfast.model.errors import Corrupt
from holdfast.model.event import Event, ModelSaid, TurnEnded, UserSaid
from holdfast.store.database import Database, Row, Transaction, Value
from holdfast.store.repos import log
from holdfast.store.spending.sums import MAX_NAME, NO_MODEL, UsageKey, UsageSum, called_model, day_of, usage_of

logger = logging.getLogger(__name__)
KEY = "usage"
"""The key under which sums and reservations are serialized."""
BATCH = 2_000
"""Events per transaction: short enough that other writes do not wait."""

Column = Literal["day", "model", "source", "user"]
Sums = dict[UsageKey, UsageSum]


class UsageRow(msgspec.Struct, frozen=True):
    """One sum with what it is summed up by."""

    key: UsageKey
    sum: UsageSum


class UsageBatch:
    """Sums up some events, reading what they need of their sessions."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._origins: dict[str, int] = {}
        self._sources: dict[str, str] = {}
        self._senders: dict[str, tuple[int, str]] = {}
        """Up to which event the messages of a session are known, and the sender of the newest of them."""
        self._models: dict[tuple[str, str], str | None] = {}
        self.days: Sums = {}
        self.sessions: dict[tuple[str, str], UsageSum] = {}
        self.settled: list[str] = []

    def add(self, rows: Iterable[Row]) -> None:
        for _, session_id, seq, kind, at, body in cast("Iterable[tuple[int, str, int, str, int, str]]", rows):
            try:
                event = decode(kind, body)
            except Corrupt as e:
                logger.warning("the usage of event %d of session %s is not counted: %s", seq, session_id, e)
                continue
            if reservation := getattr(event, "reservation", ""):
                self.settled.append(reservation)
            if seq <= self._origin(session_id):
                continue
            model = self._model(session_id, seq, event)
            if model is None:
                continue
            key = UsageKey(day_of(at), model, self._source(session_id), self._sender(session_id, seq))
            found = usage_of(event)
            merge(self.days, {key: found})
            place = (session_id, model)
            self.sessions[place] = self.sessions.get(place, UsageSum()) + found

    def _origin(self, session_id: str) -> int:
        if session_id not in self._origins:
            row = self._tx.one("usage.find_origin", of=session_id)
            self._origins[session_id] = cast("int", row[0]) if row and row[0] is not None else 0
        return self._origins[session_id]

    def _source(self, session_id: str) -> str:
        if session_id not in self._sources:
            row = self._tx.one("usage.get_source", of=session_id)
            self._sources[session_id] = cast("str", row[0]) if row else ""
        return self._sources[session_id]

    def _sender(self, session_id: str, before: int) -> str:
        """The sender of the newest message before an event; reads no event twice."""
        seen, sender = self._senders.get(session_id, (0, ""))
        newer = _newest_sender(self._tx, session_id, after=seen, before=before)
        self._senders[session_id] = (before, sender if newer is None else newer)
        return self._senders[session_id][1]

    def _model(self, session_id: str, seq: int, event: Event) -> str | None:
        """The model that the event counts for, or None. A turn counts for that of its last reply, or that did not reply."""
        if not isinstance(event, TurnEnded):
            model = called_model(event)
            if isinstance(event, ModelSaid):
                self._models[session_id, event.turn_id] = model
            return model
        if (session_id, event.turn_id) in self._models:
            return self._models[session_id, event.turn_id]
        row = self._tx.one("usage.find_reply", of=session_id, before=seq)
        reply = None if row is None else decode("model_said", cast("str", row[0]))
        is_of_turn = isinstance(reply, ModelSaid) and reply.turn_id == event.turn_id
        if is_of_turn and reply is not None:
            return called_model(reply)
        return event.called[:MAX_NAME] or NO_MODEL


def merge(sums: Sums, more: Sums) -> None:
    """Add more to the sums."""
    for key, found in more.items():
        sums[key] = sums.get(key, UsageSum()) + found


def find_sender(tx: Transaction, session_id: str) -> str:
    """The sender of the newest message; empty for the local user."""
    return _newest_sender(tx, session_id, after=0, before=log.TO_THE_END) or ""


def _newest_sender(tx: Transaction, session_id: str, *, after: int, before: int) -> str | None:
    """The sender of the newest message from one event to another; None if there is none."""
    row = tx.one("usage.find_sender", of=session_id, after=after, before=before)
    said = None if row is None else decode("user_said", cast("str", row[0]))
    return said.sender[:MAX_NAME] if isinstance(said, UserSaid) else None


async def catch_up(database: Database, *, at_least: int = 1) -> None:
    """Sum up all events that the store has now, if there are so many positions. Several processes may do this at once."""
    behind, position = await database.read(_measure)
    newest = position + behind
    while behind >= at_least and position < newest:
        await database.write(catch_up_some)
        position = await database.read(get_position)


def _measure(tx: Transaction) -> tuple[int, int]:
    """How many positions are not summed up, and the last that is."""
    return count_behind(tx), get_position(tx)


def count_behind(tx: Transaction) -> int:
    """How many positions are not summed up."""
    row = tx.one("log.get_last_position")
    return max(0, (cast("int", row[0]) if row and row[0] is not None else 0) - get_position(tx))


def get_position(tx: Transaction) -> int:
    """Up to which position the log is summed up. In a write, nobody else changes it until the end of the transaction."""
    row = tx.one("usage.get_position", key=KEY)
    return 0 if row is None else cast("int", row[0])


def catch_up_some(tx: Transaction) -> int:
    """Sum up the next events; returns their number."""
    after = get_position(tx)
    last = tx.one("log.get_last_position")
    upto = cast("int", last[0]) if last and last[0] is not None else 0
    if upto <= after:
        return 0
    rows = tx.all("usage.list_events", after=after, upto=upto, limit=BATCH)
    batch = UsageBatch(tx)
    batch.add(rows)
    add_to_days(tx, batch.days)
    tx.many(
        "usage.add_to_session",
        [{"of": of, "model": model, **msgspec.structs.asdict(one)} for (of, model), one in batch.sessions.items()],
    )
    tx.many("usage.delete_settled", [{"reservation": one} for one in batch.settled])
    tx.run("usage.set_position", key=KEY, position=cast("int", rows[-1][0]) if len(rows) == BATCH else upto)
    return len(rows)


def add_to_days(tx: Transaction, sums: Sums) -> None:
    """Add more to the sums of days."""
    tx.many("usage.add_to_day", _rows(sums))


def _rows(sums: Sums) -> list[dict[str, Value]]:
    return [
        {"day": key.day, "model": key.model, "source": key.source, "sender": key.user, **msgspec.structs.asdict(one)}
        for key, one in sums.items()
    ]


def keep_pruned(tx: Transaction, session_id: str) -> None:
    """Keep what a session has used. Call it in the transaction that deletes the session's events."""
    position = get_position(tx)
    rows = tx.all("usage.list_events_of", of=session_id, upto=log.TO_THE_END)
    whole, late = UsageBatch(tx), UsageBatch(tx)
    whole.add(rows)
    late.add([row for row in rows if cast("int", row[0]) > position])
    tx.many("usage.add_to_pruned", _rows(whole.days))
    add_to_days(tx, late.days)
    tx.many("usage.delete_settled", [{"reservation": one} for one in late.settled])


def list_days(tx: Transaction, *, first: str = "", last: str = "9999-12-31") -> list[UsageRow]:
    """The sums of a range of days, in order."""
    return [_row(row) for row in tx.all("usage.list_days", first=first, last=last)]


def list_by(tx: Transaction, column: Column, *, first: str, last: str) -> list[UsageRow]:
    """The sums of a range of days by one column; the others are empty."""
    match column:
        case "day":
            rows = tx.all("usage.list_by_day", first=first, last=last)
        case "model":
            rows = tx.all("usage.list_by_model", first=first, last=last)
        case "source":
            rows = tx.all("usage.list_by_source", first=first, last=last)
        case "user":
            rows = tx.all("usage.list_by_sender", first=first, last=last)
    return [_row(row) for row in rows]


def list_pruned(tx: Transaction) -> list[UsageRow]:
    """What sessions had used that were deleted permanently."""
    return [_row(row) for row in tx.all("usage.list_pruned")]


def list_of_session(tx: Transaction, session_id: str) -> dict[str, UsageSum]:
    """The sums of one session by model."""
    return {row.key.model: row.sum for row in map(_row, tx.all("usage.list_of_session", of=session_id))}


def sum_of_sub_agents(tx: Transaction, session_id: str) -> UsageSum:
    """The sum of all sessions below one."""
    row = tx.one("usage.sum_of_sub_agents", of=session_id)
    return UsageSum() if row is None else _row(row).sum


def _row(row: Row) -> UsageRow:
    return UsageRow(UsageKey(*row[:4]), UsageSum(*row[4:]))  # type: ignore[arg-type] # the schema checks the types


def restart(tx: Transaction) -> None:
    """Discard all sums but those of deleted sessions; `catch_up` makes them again from the log."""
    get_position(tx)
    tx.run("usage.clear_days")
    tx.run("usage.clear_sessions")
    add_to_days(tx, {row.key: row.sum for row in list_pruned(tx)})
    tx.run("usage.set_position", key=KEY, position=0)
