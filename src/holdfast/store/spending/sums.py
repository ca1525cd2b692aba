"""Sums of usage, derived from the events of a log. Pure."""

import msgspec

from holdfast.model.event import Compacted, CompactionFailed, Event, ModelCalled, ModelSaid, TurnEnded, Usage
from holdfast.model.price import is_plausible, to_nano
from holdfast.model.times import moment

MAX_NAME = 200
MAX_COUNT = 10**15
"""An imported log may claim any number: sums must fit into 63 bits."""
NO_USAGE = Usage()
NO_MODEL = ""
"""The model of turns in which none was called, and of interrupted calls that earlier releases recorded."""


class UsageKey(msgspec.Struct, frozen=True):
    """What usage is summed up by. `user` is the sender of the newest message before it; empty for the local user."""

    day: str
    """In UTC, as `2026-11-18`."""
    model: str
    source: str
    user: str


class UsageSum(msgspec.Struct, frozen=True):
    """Turns, calls of models, their tokens, and their cost in nano-dollars without the `unpriced` calls, whose cost is unknown."""

    turns: int = 0
    calls: int = 0
    unpriced: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int = 0
    interrupted: int = 0
    """How many of the `unpriced` calls were interrupted, so that their cost is unknown whatever the model's price."""

    def __add__(self, other: "UsageSum") -> "UsageSum":
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return UsageSum(*(one + two for one, two in zip(mine, theirs, strict=True)))


def day_of(at: int) -> str:
    """The day of an instant, in UTC."""
    return moment(at).date().isoformat()


def called_model(event: Event) -> str | None:
    """The model that the event's usage counts for; None if the event has no usage of its own."""
    match event:
        case ModelSaid() if _is_played(event):
            return None
        case ModelSaid():
            return (event.called or event.model)[:MAX_NAME]
        case ModelCalled():
            return event.model[:MAX_NAME]
        case Compacted() if not event.recorded and event.usage != NO_USAGE:
            return event.model[:MAX_NAME]
        case CompactionFailed() if not event.recorded and event.usage != NO_USAGE:
            return NO_MODEL
        case _:
            return None


def _is_played(said: ModelSaid) -> bool:
    """Whether a client has brought the reply with its history: this session asked no model for it."""
    return not (said.model or said.called or said.partial) and said.usage == NO_USAGE


def usage_of(event: Event) -> UsageSum:
    """What the event adds to the sums."""
    match event:
        case ModelSaid() if event.partial and event.called:  # earlier releases did not record the model of such a reply
            return msgspec.structs.replace(_sum(event.usage, 1), interrupted=int(event.usage.cost is None))
        case ModelSaid() | ModelCalled():
            return _sum(event.usage, 1)
        case Compacted():
            return _sum(event.usage, max(1, min(event.chunks, MAX_COUNT)))
        case CompactionFailed():
            return _sum(event.usage, 1)
        case TurnEnded():
            return UsageSum(turns=1)
        case _:
            return UsageSum()


def _sum(usage: Usage, calls: int) -> UsageSum:
    cost = usage.cost if is_plausible(usage.cost) else None
    unpriced = calls if cost is None else max(0, min(usage.unpriced, calls))
    return UsageSum(
        calls=calls,
        unpriced=unpriced,
        tokens_in=_count(usage.tokens_in),
        tokens_out=_count(usage.tokens_out),
        cache_read=_count(usage.cache_read),
        cache_write=_count(usage.cache_write),
        reasoning=_count(usage.reasoning),
        cost=0 if cost is None else to_nano(cost),
    )


def _count(tokens: int) -> int:
    return max(0, min(tokens, MAX_COUNT))
