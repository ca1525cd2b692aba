"""The sessions of other programs, whatever their format, in a few words that every reader uses.

A reader says what a source holds, one fact after another and in order, and never looks ahead: what it said of the
beginning of a source it says again when the source has grown. It makes nothing up and repairs nothing; `weave` does.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from holdfast.model.event import EndReason, Usage
from holdfast.model.message import Content, Outcome, Part, Text
from holdfast.model.times import SECOND, from_iso, micros

LATEST = 253_402_300_799 * SECOND
"""The end of the year 9999: a time behind it cannot be written as ISO 8601."""


class _Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: int = 0
    """Its time in the source; 0 if it has none, and then that of what came before it holds."""
    units: int = 1
    """How many lines or rows of the source this is."""


class Heard(_Told, frozen=True, tag="heard"):
    """Somebody other than the model said something; `name` says who, if it was not the user."""

    parts: tuple[Content, ...]
    name: str = ""


class Replied(_Told, frozen=True, tag="replied"):
    parts: tuple[Part, ...]
    model: str = ""
    finish: str = ""
    usage: Usage = Usage()
    partial: bool = False


class Returned(_Told, frozen=True, tag="returned"):
    call_id: str
    parts: tuple[Content, ...]
    outcome: Outcome = "ok"
    name: str = ""
    millis: int = 0


Said = Heard | Replied | Returned


class Shortened(_Told, frozen=True, tag="shortened"):
    """The context was compacted: the summary stands for what came before, but for the pinned messages.

    Messages are named by their number, counted from 0.
    """

    summary: str
    pinned: tuple[int, ...] = ()
    upto: int = -1
    """The first message that the summary does not stand for; -1 if it stands for all of them."""


class TakenBack(_Told, frozen=True, tag="taken_back"):
    """Words that were said and then undone."""

    said: tuple[Said, ...]


class Undone(_Told, frozen=True, tag="undone"):
    """Everything from a message on was taken back; `first` is its number, counted from 0."""

    first: int


class Copied(_Told, frozen=True, tag="copied"):
    """Lines of the source that only repeat what was told already."""


class Skipped(_Told, frozen=True, tag="skipped"):
    """Lines of the source that hold messages which were not understood."""

    why: str


class Damaged(_Told, frozen=True, tag="damaged"):
    """The source cannot be read beyond this place."""

    why: str


class About(_Told, frozen=True, tag="about"):
    """Something about the session as a whole that shows only on the way; what is said last holds."""

    title: str | None = None
    usage: Usage | None = None


Fact = Heard | Replied | Returned | Shortened | TakenBack | Undone | Copied | Skipped | Damaged | About
ASIDE = (Copied, Skipped, Damaged, About)
"""Facts that leave nothing in a log."""


class Parent(msgspec.Struct, frozen=True):
    """Another session of the same format that this one belongs to."""

    origin: str
    began_at: int = 0
    """0 if that is not known: then the two are joined only if the other is in the store."""
    is_side: bool = False
    """Whether this one did a piece of work for it, rather than going another way."""


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """A session of another program. `facts` may be called again, and begins at the beginning then."""

    format: str
    origin: str
    """Its id there."""
    facts: Callable[[], Iterator[Fact]]
    began_at: int = 0
    others: tuple[str, ...] = ()
    """Other ids it had there."""
    title: str | None = None
    workdir: str | None = None
    parent: Parent | None = None
    ended: tuple[EndReason, str, int] | None = None
    """Why, in its own words why, and when."""
    usage: Usage = Usage()
    """What it counted in all."""
    notes: tuple[str, ...] = ()
    """What the user should know about it."""
    share: float = 1.0
    """How much of its file has been read when this one is done."""


# What sources are made of, taken as it comes: any value may be missing or of another type than documented.


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def whole(value: object) -> int:
    """A count; 0 for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type] # just checked


def instant(value: object) -> int:
    """Seconds since 1970, or a text in ISO 8601; 0 for anything else."""
    try:
        found = from_iso(value) if isinstance(value, str) else round((number(value) or 0) * SECOND)
    except (ValueError, OverflowError):
        return _without_zone(value)
    return found if 0 < found < LATEST else 0


def _without_zone(value: object) -> int:
    """A time that names no zone is taken as UTC."""
    try:
        return micros(datetime.fromisoformat(text(value)).replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return 0


def first_words(value: str) -> str:
    """A title for want of a better one."""
    line = " ".join(value[:400].split())
    return line if len(line) <= 80 else line[:79].rstrip() + "…"


def words(value: str) -> tuple[Content, ...]:
    return (Text(value),) if value else ()
