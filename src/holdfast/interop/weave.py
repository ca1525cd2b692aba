"""Turns what a foreign source told into events of a well-formed log: turns that end, and one result for each call.

What the source lacks is supplied and says so: a call without a result becomes "outcome unknown". What has no place
is kept as words: a result without its call. Nothing depends on what comes later, so a source that has grown gives
the same events again and then more.
"""

import hashlib
from array import array
from collections.abc import Iterator

import msgspec

from holdfast.interop.foreign import ASIDE, Fact, Heard, Replied, Returned, Said, Shortened, TakenBack, Undone
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
LARGEST_TURN = 4_000_000
"""Letters after which a turn that has not ended is divided, so that it need not be held in memory or committed at once."""
Timed = tuple[int, Event]


class Weaver:
    """Makes events, and knows what number each will have. `name` tells sessions apart, so that turns get ids of their own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn: str | None = None
        self._owed: list[tuple[str, ToolCall]] = []
        """Calls without a result yet, each with the id the source knows it by."""
        self._is_cut = False
        """Whether something of the open turn had to be supplied, or no reply has come yet."""
        self._has_reply = False
        self._size = 0
        """Letters told so far, and how many of them before the open turn."""
        self._size_before_turn = 0
        self._turn_begins_behind = 0
        self._begins_behind = array("Q")
        """For each message the number before its turn."""
        self._seq_of = array("Q")
        self._cut_at = array("Q")
        """For each message the one at which a context may be cut instead: never between a call and its result."""
        self._asked_in = 0
        """The message that made the calls in hand."""
        self._digest = hashlib.sha256()
        self._last_at = 0
        """The time of the newest event: what has to be supplied belongs to what came before it."""
        self.seq = 0
        self.at = 0
        self.epoch = 0

    @property
    def messages(self) -> int:
        return len(self._seq_of)

    @property
    def digest(self) -> str:
        """Stands for everything that was told so far."""
        return self._digest.hexdigest()

    def digest_with(self, fact: Fact) -> str:
        """What the digest would be after one more fact."""
        before, size = self._digest, self._size
        self._digest = before.copy()
        self._tell(fact)
        found, self._digest, self._size = self.digest, before, size
        return found

    @property
    def is_between_turns(self) -> bool:
        return self._turn is None

    def weave(self, fact: Fact) -> Iterator[Timed]:
        """The events of one more fact."""
        if isinstance(fact, ASIDE):
            return
        self._tell(fact)
        self.at = fact.at or self.at
        match fact:
            case Shortened():
                yield from self._shorten(fact)
            case TakenBack():
                yield from self._take_back(fact)
            case Undone():
                yield from self._undo(fact)
            case Heard() | Replied() | Returned():
                yield from self._say(fact)

    def _tell(self, fact: Fact) -> None:
        """Add to the digest. A reply is told part by part, because the last one of a source may not be whole yet;
        which model it was some sources keep only once for all.
        """
        if isinstance(fact, Replied):
            for part in fact.parts or (None,):
                self._write(part)
        elif isinstance(fact, TakenBack):
            for said in fact.said:
                self._tell(said)
        else:
            self._write(fact)

    def _write(self, value: object) -> None:
        told = dumps(msgspec.to_builtins(value)).encode()
        self._digest.update(told)
        self._size += len(told)

    def close(self) -> Iterator[Timed]:
        """End the open turn, with a result for each call that has none."""
        if self._turn is not None:
            yield from self._settle_calls()
            outcome: TurnOutcome = "interrupted" if self._is_cut else "done"
            reason = "the source says no more of it" if self._is_cut else ""
            ended = TurnEnded(turn_id=self._turn, outcome=outcome, reason=reason)
            self._turn = None
            yield self._place(ended, self._last_at)

    def stand_at(self, seq: int) -> None:
        """Go on behind an event that was written by others, all turns being closed."""
        assert self._turn is None, "a turn is woven in one piece"
        self.seq = seq

    def _place(self, event: Event, at: int = 0) -> Timed:
        self.seq += 1
        self._last_at = at or self.at
        return self._last_at, event

    def _say(self, said: Said) -> Iterator[Timed]:
        match said:
            case Heard():
                if self._has_reply and not self._owed:
                    yield from self.close()
                yield from self._hear(said.parts, said.name)
            case Replied():
                yield from self._settle_calls()
                if self._size - self._size_before_turn > LARGEST_TURN:
                    yield from self.close()
                yield from self._begin()
                self._is_cut, self._has_reply = said.partial, True
                yield self._message(self._model_said(said))
            case Returned():
                yield from self._return(said)

    def _begin(self) -> Iterator[Timed]:
        if self._turn is None:
            self._turn = derive(TURN, self.at, f"{self._name} {self.messages}")
            self._turn_begins_behind, self._has_reply = self.seq, False
            self._size_before_turn = self._size
            yield self._place(TurnStarted(turn_id=self._turn))

    def _message(self, event: Event) -> Timed:
        self._seq_of.append(self.seq + 1)
        self._begins_behind.append(self._turn_begins_behind)
        is_inside = isinstance(event, ToolEnded) or (isinstance(event, UserSaid) and bool(self._owed))
        self._asked_in = self._asked_in if is_inside else self.messages - 1
        self._cut_at.append(self._asked_in)
        return self._place(event)

    def _hear(self, parts: tuple[Part, ...], name: str) -> Iterator[Timed]:
        yield from self._begin()
        self._is_cut = True
        yield self._message(UserSaid(turn_id=self._turn or "", parts=parts, name=name))  # type: ignore[arg-type]

    def _model_said(self, said: Replied) -> ModelSaid:
        taken: set[str] = set()
        parts: list[Part] = []
        for part in said.parts:
            if isinstance(part, ToolCall):
                call = msgspec.structs.replace(part, id=self._free_id(part.id, taken))
                taken.add(call.id)
                self._owed.append((part.id, call))
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

    def _return(self, said: Returned) -> Iterator[Timed]:
        place = next((n for n, (source_id, _) in enumerate(self._owed) if source_id == said.call_id), None)
        if place is None:
            label = f"[result of {said.name or 'a call'} {said.call_id}, whose call is not in the source]"
            yield from self._hear((Text(label), *said.parts), "tool")
            return
        _, call = self._owed.pop(place)
        yield self._message(self._ended(call, said))

    def _ended(self, call: ToolCall, said: Returned) -> ToolEnded:
        return ToolEnded(
            turn_id=self._turn or "",
            call_id=call.id,
            outcome=said.outcome,
            parts=said.parts,
            name=said.name or call.name,
            millis=said.millis,
        )

    def _settle_calls(self) -> Iterator[Timed]:
        """The results that the source does not have. They are no messages of the source and are not counted as such."""
        for _, call in self._owed:
            lost = Returned(call_id=call.id, parts=(Text(UNKNOWN),), outcome="unknown")
            self._is_cut = True
            yield self._place(self._ended(call, lost), self._last_at)
        self._owed.clear()

    def _shorten(self, fact: Shortened) -> Iterator[Timed]:
        yield from self._settle_calls()
        self.epoch += 1
        first = fact.upto if 0 <= fact.upto < self.messages else self.messages
        first = self._cut_at[first] if first < self.messages else first
        upto = self._seq_of[first] - 1 if first < self.messages else self.seq
        if first < self.messages and self._begins_behind[first] == upto - 1:
            upto -= 1  # the beginning of a turn goes with its first words
        pinned = tuple(self._seq_of[n] for n in fact.pinned if 0 <= n < first)
        summary = fact.summary or NO_SUMMARY
        yield self._place(Compacted(epoch=self.epoch, upto_seq=upto, summary=summary, how=HOW, pinned=pinned))

    def _take_back(self, fact: TakenBack) -> Iterator[Timed]:
        yield from self.close()
        stays = self.seq
        for said in fact.said:
            self.at = said.at or self.at
            yield from self._say(said)
        yield from self.close()
        yield self._place(Rewound(to_seq=stays))

    def _undo(self, fact: Undone) -> Iterator[Timed]:
        yield from self.close()
        if 0 <= fact.first < self.messages:
            yield self._place(Rewound(to_seq=self._begins_behind[fact.first]))
