"""The sessions of other programs as facts, which are the same for all formats.

A reader yields the facts of a source in order and never looks ahead: when the source has grown, it yields the same
facts for the old part. It adds and repairs nothing; `log_builder` does. Tags and fields are part of stored digests.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from holdfast.model.event import EndReason, Usage
from holdfast.model.message import Content, Outcome, Part, Text
from holdfast.model.text import truncate
from holdfast.model.times import SECOND, from_iso, micros

LATEST = 253_402_300_799 * SECOND
"""The end of the year 9999: a later time cannot be written as ISO 8601."""


class _ImportedFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: int = 0
    """Its time in the source; 0 if it has none: then the time of the fact before it applies."""
    units: int = 1
    """The number of lines or rows of the source."""


class ImportedInput(_ImportedFact, frozen=True, tag="heard"):
    """A message that is not from the model; `name` is the sender if it was not the user."""

    parts: tuple[Content, ...]
    name: str = ""


class ImportedReply(_ImportedFact, frozen=True, tag="replied"):
    parts: tuple[Part, ...]
    model: str = ""
    finish: str = ""
    usage: Usage = Usage()
    partial: bool = False


class ImportedResult(_ImportedFact, frozen=True, tag="returned"):
    call_id: str
    parts: tuple[Content, ...]
    outcome: Outcome = "ok"
    name: str = ""
    millis: int = 0


ImportedMessage = ImportedInput | ImportedReply | ImportedResult


class ImportedCompaction(_ImportedFact, frozen=True, tag="shortened"):
    """The context was compacted: the summary replaces everything before it except the pinned messages.

    Messages are identified by their number, counted from 0.
    """

    summary: str
    pinned: tuple[int, ...] = ()
    upto: int = -1
    """The first message that the summary does not replace; -1 if it replaces all of them."""


class ImportedWithdrawal(_ImportedFact, frozen=True, tag="taken_back"):
    """Messages that were undone."""

    said: tuple[ImportedMessage, ...]


class ImportedUndo(_ImportedFact, frozen=True, tag="undone"):
    """Everything from a message on was undone; `first` is its number, counted from 0."""

    first: int


class RepeatedLines(_ImportedFact, frozen=True, tag="copied"):
    """Lines of the source that repeat earlier ones."""


class SkippedLines(_ImportedFact, frozen=True, tag="skipped"):
    """Lines of the source with messages that could not be read."""

    why: str


class DamagedSource(_ImportedFact, frozen=True, tag="damaged"):
    """The source cannot be read beyond this point."""

    why: str


class SessionFacts(_ImportedFact, frozen=True, tag="about"):
    """Facts about the whole session; the last one applies."""

    title: str | None = None
    usage: Usage | None = None


Fact = (
    ImportedInput
    | ImportedReply
    | ImportedResult
    | ImportedCompaction
    | ImportedWithdrawal
    | ImportedUndo
    | RepeatedLines
    | SkippedLines
    | DamagedSource
    | SessionFacts
)
NOT_LOGGED = (RepeatedLines, SkippedLines, DamagedSource, SessionFacts)
"""Facts that add no event to the log."""


class ParentSession(msgspec.Struct, frozen=True):
    """The session of the same format that this one belongs to."""

    origin: str
    began_at: int = 0
    """0 if unknown: then the two are linked only if the parent is in the store."""
    is_side: bool = False
    """Whether this one is a subagent of the parent, not a branch."""


class ForeignSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of another program. Each call of `facts` starts at the beginning."""

    format: str
    origin: str
    """Its id in the source."""
    facts: Callable[[], Iterator[Fact]]
    began_at: int = 0
    others: tuple[str, ...] = ()
    """Other ids it had in the source."""
    title: str | None = None
    workdir: str | None = None
    parent: ParentSession | None = None
    ended: tuple[EndReason, str, int] | None = None
    """Reason, reason as the source writes it, time."""
    usage: Usage = Usage()
    """Its total usage as the source counts it."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""
    share: float = 1.0
    """The share of the file that has been read after this session."""


# Values of sources: any may be missing or have another type than documented.


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_count(value: object) -> int:
    """A count; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def as_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type] # just checked


def as_time(value: object) -> int:
    """Seconds since 1970, or a text in ISO 8601; 0 for anything else."""
    try:
        found = from_iso(value) if isinstance(value, str) else round((as_number(value) or 0) * SECOND)
    except (ValueError, OverflowError):
        return _without_zone(value)
    return found if 0 < found < LATEST else 0


def _without_zone(value: object) -> int:
    """A time without a zone is read as UTC."""
    try:
        return micros(datetime.fromisoformat(as_text(value)).replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return 0


def default_title(value: str) -> str:
    """A title made from the first words of a message."""
    return truncate(" ".join(value[:400].split()), 80)


def text_parts(value: str) -> tuple[Content, ...]:
    return (Text(value),) if value else ()
