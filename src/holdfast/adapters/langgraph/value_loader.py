"""Reads the values of a LangGraph thread: whole ranges of events at once, each event verified by its hash once per process."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.adapters.items import decode_rows
from holdfast.adapters.langgraph.items import PLACES, Typed, TypedSerializer, values_of_many
from holdfast.adapters.langgraph.thread_state import Place
from holdfast.model.errors import Corrupt
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.repos.log import LogHead

GAP = 16
"""Events between two that are needed that are read as well, rather than in two queries."""
LONGEST = 1_024


class ValueLoader:
    """The values of a few checkpoints of one thread, read in one transaction. What is read is kept as long as the loader."""

    def __init__(self, tx: Transaction, session_id: str, verified: LogHead, serde: TypedSerializer) -> None:
        self._tx = tx
        self._session_id = session_id
        self.verified = verified
        """Up to here, the events are those that this process has verified before. Moves with what is read."""
        self._serde = serde
        self._known: dict[int, Typed] = {}

    def load(self, places: Mapping[Any, Place]) -> dict[Any, Any]:
        """The values under the same names, each made anew. Raises Corrupt."""
        refs = {name: place if isinstance(place, int) else place.refs() for name, place in places.items()}
        wanted = {ref for one in refs.values() for ref in ([one] if isinstance(one, int) else one)}
        self._read(wanted - self._known.keys())
        return {name: self._make(one) for name, one in refs.items()}

    def _make(self, refs: int | list[int]) -> Any:
        if isinstance(refs, int):
            return self._serde.loads_typed(self._known[refs])
        known, loads = self._known, self._serde.loads_typed
        return [loads(known[ref]) for ref in refs]

    def _read(self, refs: set[int]) -> None:
        seqs = sorted({ref // PLACES for ref in refs})
        for first, last in _ranges(seqs):
            rows = log.read_verified_rows(self._tx, self._session_id, last, first=first, known=self.verified)
            if first <= self.verified.seq + 1 and last > self.verified.seq:
                self.verified = LogHead(self._session_id, last, rows[-1][3])
            events = decode_rows(rows)
            for seq, values in zip(events, values_of_many(list(events.values())), strict=True):
                for ref, typed in enumerate(values, seq * PLACES):
                    self._known[ref] = typed
        if missing := refs - self._known.keys():
            raise Corrupt(
                f"session {self._session_id}: event {min(missing) // PLACES} lacks a value that a later one names"
            )


def _ranges(seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ranges with all the events, in order."""
    first = last = 0
    for seq in seqs:
        if first and (seq - last > GAP or seq - first >= LONGEST):
            yield first, last
            first = 0
        first, last = first or seq, seq
    if first:
        yield first, last
