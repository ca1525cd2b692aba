"""The outcome of importing a foreign session, with counts of its messages."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast.interop.importing.facts import (
    DamagedSource,
    Fact,
    ImportedReply,
    ImportedWithdrawal,
    RepeatedLines,
    SessionFacts,
    SkippedLines,
)
from holdfast.model.event import Usage
from holdfast.model.session import Session

Outcome = Literal["new", "same", "extended", "behind", "empty", "left"]
"""`behind`: the session was continued here; `left`: the source conflicts with the store and was not imported; a note says why."""


class ImportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one foreign session."""

    format: str
    origin: str
    outcome: Outcome
    session: Session | None = None
    """None if nothing was stored: the source is empty, or this was a dry run."""
    added: int = 0
    """Events that were written, or would be in a dry run."""
    source: int = 0
    """Messages in the source, as it counts them: the sum of `taken`, `copied` and `skipped`."""
    taken: int = 0
    copied: int = 0
    skipped: int = 0
    notes: tuple[str, ...] = ()


class ImportCounts(msgspec.Struct):
    """Counts of what has been read from a source so far."""

    taken: int = 0
    copied: int = 0
    skipped: int = 0
    why: dict[str, int] = {}
    damage: str = ""
    title: str | None = None
    usage: Usage = Usage()
    reported: Usage = Usage()
    """The usage that the replies report."""

    def add(self, fact: Fact) -> None:
        match fact:
            case RepeatedLines():
                self.copied += fact.units
            case SkippedLines():
                self.skipped += fact.units
                self.why[fact.why] = self.why.get(fact.why, 0) + fact.units
            case DamagedSource():
                self.damage = fact.why
            case SessionFacts():
                self.title = fact.title or self.title
                self.usage = fact.usage or self.usage
            case ImportedWithdrawal():
                for said in fact.said:
                    self.add(said)
            case ImportedReply():
                self.taken += fact.units
                self.reported = add_usage(self.reported, fact.usage)
            case _:
                self.taken += fact.units

    def notes(self) -> Iterator[str]:
        for why, count in self.why.items():
            yield f"not imported: {count} × {why}" if count > 1 else f"not imported: {why}"
        if self.damage:
            yield self.damage


def add_usage(one: Usage, other: Usage, sign: int = 1) -> Usage:
    """The sum, or with sign -1 the difference; never negative."""
    cost = None if one.cost is None and other.cost is None else max((one.cost or 0) + sign * (other.cost or 0), 0)
    names = ("tokens_in", "tokens_out", "cache_read", "cache_write", "reasoning")
    counts = {name: max(getattr(one, name) + sign * getattr(other, name), 0) for name in names}
    return Usage(**counts, cost=cost or None)
