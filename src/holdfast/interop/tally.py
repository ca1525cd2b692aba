"""What became of a foreign session, and of each message that its source holds."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast.interop.foreign import About, Copied, Damaged, Fact, Replied, Skipped, TakenBack
from holdfast.model.event import Usage
from holdfast.model.session import Session

Outcome = Literal["new", "same", "extended", "behind", "empty", "left"]
"""`behind`: the session was continued here; `left`: the source is not what the store has of it, and could not be added; a note says why."""


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one foreign session."""

    format: str
    origin: str
    outcome: Outcome
    session: Session | None = None
    """None if nothing was to be stored and nothing was: it says nothing, or this was only a rehearsal."""
    added: int = 0
    """Events that were written, or would have been."""
    source: int = 0
    """Messages that the source holds, as it counts them: `taken`, `copied` and `skipped` together."""
    taken: int = 0
    copied: int = 0
    skipped: int = 0
    notes: tuple[str, ...] = ()


class Tally(msgspec.Struct):
    """What has been heard of a source so far."""

    taken: int = 0
    copied: int = 0
    skipped: int = 0
    why: dict[str, int] = {}
    damage: str = ""
    title: str | None = None
    usage: Usage = Usage()
    told: Usage = Usage()
    """What the replies say they cost."""

    def add(self, fact: Fact) -> None:
        match fact:
            case Copied():
                self.copied += fact.units
            case Skipped():
                self.skipped += fact.units
                self.why[fact.why] = self.why.get(fact.why, 0) + fact.units
            case Damaged():
                self.damage = fact.why
            case About():
                self.title = fact.title or self.title
                self.usage = fact.usage or self.usage
            case TakenBack():
                for said in fact.said:
                    self.add(said)
            case Replied():
                self.taken += fact.units
                self.told = add(self.told, fact.usage)
            case _:
                self.taken += fact.units

    def notes(self) -> Iterator[str]:
        for why, count in self.why.items():
            yield f"not taken: {count} × {why}" if count > 1 else f"not taken: {why}"
        if self.damage:
            yield self.damage


def add(one: Usage, other: Usage, sign: int = 1) -> Usage:
    """The sum, or with -1 what is left of the first: never less than nothing."""
    cost = None if one.cost is None and other.cost is None else max((one.cost or 0) + sign * (other.cost or 0), 0)
    names = ("tokens_in", "tokens_out", "cache_read", "cache_write", "reasoning")
    counts = {name: max(getattr(one, name) + sign * getattr(other, name), 0) for name in names}
    return Usage(**counts, cost=cost or None)
