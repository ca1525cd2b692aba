"""Builds the events of a well-formed log from the facts of a foreign source: turns that end, one result per call.

What the source lacks is added and marked: a call without a result gets the outcome "unknown". A result without its
call is kept as text. No event depends on later facts, so a source that has grown gives the same events again and then
more. The texts of added events are part of that: an interrupted import compares them with the store.
"""

import hashlib
from array import array
from collections.abc import Iterator

import msgspec

from holdfast.interop.importing.facts import (
    NOT_LOGGED,
    Fact,
    ImportedCompaction,
    ImportedInput,
    ImportedMessage,
    ImportedReply,
    ImportedResult,
    ImportedUndo,
    ImportedWithdrawal,
)
from holdfast.model.entry import dumps
from holdfast.model.event import (
    Compacted,
    Event,
    ModelSaid,
    Rewound,
    ToolEnded,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
    UserSaid,
)
from holdfast.model.ids import TURN, derive
from holdfast.model.message import Part, Text, ToolCall
from holdfast.model.turn import UNKNOWN

HOW = "imported"
NO_SUMMARY = "Earlier messages were compacted before this session was imported; no summary of them was kept."
MAX_TURN_CHARS = 4_000_000
"""Length at which an open turn is split, so that it need not be kept in memory or committed at once."""
Timed = tuple[int, Event]


class LogBuilder:
    """Builds events and assigns their numbers. `name` makes the turn ids unique to the session."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn: str | None = None
        self._open_calls: list[tuple[str, ToolCall]] = []
        """Calls without a result so far, each with its id in the source."""
        self._is_cut = False
        """Whether something had to be added to the open turn, or it has no reply yet."""
        self._has_reply = False
        self._size = 0
        """Characters so far; `_size_before_turn` counts those before the open turn."""
        self._size_before_turn = 0
        self._turn_begins_behind = 0
        self._begins_behind = array("Q")
        """For each message the event number before its turn."""
        self._seq_of = array("Q")
        self._cut_at = array("Q")
        """For each message the one at which a context may be cut: never between a call and its result."""
        self._calls_made_in = 0
        """The message that made the open calls."""
        self._digest = hashlib.sha256()
        self._last_at = 0
        """The time of the newest event; added events get this time."""
        self.seq = 0
        self.at = 0
        self.epoch = 0

    @property
    def messages(self) -> int:
        return len(self._seq_of)

    @property
    def digest(self) -> str:
        """The digest of all facts so far."""
        return self._digest.hexdigest()

    def digest_with(self, fact: Fact) -> str:
        """The digest after one more fact, without adding it."""
        before, size = self._digest, self._size
        self._digest = before.copy()
        self._update_digest(fact)
        found, self._digest, self._size = self.digest, before, size
        return found

    @property
    def is_between_turns(self) -> bool:
        return self._turn is None

    def add_fact(self, fact: Fact) -> Iterator[Timed]:
        """The events of one more fact."""
        if isinstance(fact, NOT_LOGGED):
            return
        self._update_digest(fact)
        self.at = fact.at or self.at
        match fact:
            case ImportedCompaction():
                yield from self._add_compaction(fact)
            case ImportedWithdrawal():
                yield from self._add_withdrawal(fact)
            case ImportedUndo():
                yield from self._add_undo(fact)
            case ImportedInput() | ImportedReply() | ImportedResult():
                yield from self._add_message(fact)

    def _update_digest(self, fact: Fact) -> None:
        """Add a fact to the digest. A reply is added part by part, because the last one of a source may be incomplete;
        its model is not added, because some sources store it only once per session.
        """
        if isinstance(fact, ImportedReply):
            for part in fact.parts or (None,):
                self._write(part)
        elif isinstance(fact, ImportedWithdrawal):
            for said in fact.said:
                self._update_digest(said)
        else:
            self._write(fact)

    def _write(self, value: object) -> None:
        data = dumps(msgspec.to_builtins(value)).encode()
        self._digest.update(data)
        self._size += len(data)

    def close(self) -> Iterator[Timed]:
        """End the open turn, with a result for each call that has none."""
        if self._turn is not None:
            yield from self._close_calls()
            outcome: TurnOutcome = "interrupted" if self._is_cut else "done"
            reason = "the source says no more of it" if self._is_cut else ""
            ended = TurnEnded(turn_id=self._turn, outcome=outcome, reason=reason)
            self._turn = None
            yield self._timed(ended, self._last_at)

    def continue_after(self, seq: int) -> None:
        """Continue after an event that was not imported; no turn may be open."""
        assert self._turn is None, "no turn is open"
        self.seq = seq

    def _timed(self, event: Event, at: int = 0) -> Timed:
        self.seq += 1
        self._last_at = at or self.at
        return self._last_at, event

    def _add_message(self, said: ImportedMessage) -> Iterator[Timed]:
        match said:
            case ImportedInput():
                if self._has_reply and not self._open_calls:
                    yield from self.close()
                yield from self._add_input(said.parts, said.name)
            case ImportedReply():
                yield from self._close_calls()
                if self._size - self._size_before_turn > MAX_TURN_CHARS:
                    yield from self.close()
                yield from self._start_turn()
                self._is_cut, self._has_reply = said.partial, True
                yield self._message(self._model_said(said))
            case ImportedResult():
                yield from self._add_result(said)

    def _start_turn(self) -> Iterator[Timed]:
        if self._turn is None:
            self._turn = derive(TURN, self.at, f"{self._name} {self.messages}")
            self._turn_begins_behind, self._has_reply = self.seq, False
            self._size_before_turn = self._size
            yield self._timed(TurnStarted(turn_id=self._turn))

    def _message(self, event: Event) -> Timed:
        self._seq_of.append(self.seq + 1)
        self._begins_behind.append(self._turn_begins_behind)
        is_inside = isinstance(event, ToolEnded) or (isinstance(event, UserSaid) and bool(self._open_calls))
        self._calls_made_in = self._calls_made_in if is_inside else self.messages - 1
        self._cut_at.append(self._calls_made_in)
        return self._timed(event)

    def _add_input(self, parts: tuple[Part, ...], name: str) -> Iterator[Timed]:
        yield from self._start_turn()
        self._is_cut = True
        yield self._message(UserSaid(turn_id=self._turn or "", parts=parts, name=name))  # type: ignore[arg-type]

    def _model_said(self, said: ImportedReply) -> ModelSaid:
        taken: set[str] = set()
        parts: list[Part] = []
        for part in said.parts:
            if isinstance(part, ToolCall):
                call = msgspec.structs.replace(part, id=self._free_id(part.id, taken))
                taken.add(call.id)
                self._open_calls.append((part.id, call))
                parts.append(call)
            else:
                parts.append(part)
        return ModelSaid(
            turn_id=self._turn or "",
            parts=tuple(parts),
            model=said.model,
            finish=said.finish,
            usage=said.usage,
            partial=said.partial,
        )

    def _free_id(self, wanted: str, taken: set[str]) -> str:
        name, count = wanted or f"call-{self.messages}", 1
        while name in taken:
            count += 1
            name = f"{wanted or 'call'}-{count}"
        return name

    def _add_result(self, said: ImportedResult) -> Iterator[Timed]:
        position = next((n for n, (source_id, _) in enumerate(self._open_calls) if source_id == said.call_id), None)
        if position is None:
            label = f"[result of {said.name or 'a call'} {said.call_id}, whose call is not in the source]"
            yield from self._add_input((Text(label), *said.parts), "tool")
            return
        _, call = self._open_calls.pop(position)
        yield self._message(self._ended(call, said))

    def _ended(self, call: ToolCall, said: ImportedResult) -> ToolEnded:
        return ToolEnded(
            turn_id=self._turn or "",
            call_id=call.id,
            outcome=said.outcome,
            parts=said.parts,
            name=said.name or call.name,
            millis=said.millis,
        )

    def _close_calls(self) -> Iterator[Timed]:
        """Add the results that the source lacks. They are not counted as messages of the source."""
        for _, call in self._open_calls:
            lost = ImportedResult(call_id=call.id, parts=(Text(UNKNOWN),), outcome="unknown")
            self._is_cut = True
            yield self._timed(self._ended(call, lost), self._last_at)
        self._open_calls.clear()

    def _add_compaction(self, fact: ImportedCompaction) -> Iterator[Timed]:
        yield from self._close_calls()
        self.epoch += 1
        first = fact.upto if 0 <= fact.upto < self.messages else self.messages
        first = self._cut_at[first] if first < self.messages else first
        upto = self._seq_of[first] - 1 if first < self.messages else self.seq
        if first < self.messages and self._begins_behind[first] == upto - 1:
            upto -= 1  # the start of a turn stays with its first message
        pinned = tuple(self._seq_of[n] for n in fact.pinned if 0 <= n < first)
        summary = fact.summary or NO_SUMMARY
        yield self._timed(Compacted(epoch=self.epoch, upto_seq=upto, summary=summary, how=HOW, pinned=pinned))

    def _add_withdrawal(self, fact: ImportedWithdrawal) -> Iterator[Timed]:
        yield from self.close()
        stays = self.seq
        for said in fact.said:
            self.at = said.at or self.at
            yield from self._add_message(said)
        yield from self.close()
        yield self._timed(Rewound(to_seq=stays))

    def _add_undo(self, fact: ImportedUndo) -> Iterator[Timed]:
        yield from self.close()
        if 0 <= fact.first < self.messages:
            yield self._timed(Rewound(to_seq=self._begins_behind[fact.first]))
