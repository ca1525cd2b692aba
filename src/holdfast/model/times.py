"""Instants as whole microseconds since 1970 in UTC, and their ISO 8601 form."""

from datetime import UTC, datetime, timedelta
from typing import Protocol

from holdfast.model.errors import Invalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND


class Clock(Protocol):
    """A port, so that tests control the time."""

    def now(self) -> int:
        """The wall-clock time in microseconds since 1970 UTC. It may jump."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences are meaningful."""


def micros(moment: datetime) -> int:
    """The instant of an aware datetime."""
    return (moment - EPOCH) // timedelta(microseconds=1)


EARLIEST = micros(datetime.min.replace(tzinfo=UTC))
LATEST = micros(datetime.max.replace(tzinfo=UTC))
"""The earliest and the latest instant that `datetime` can represent."""


def moment(at: int) -> datetime:
    """The instant as a datetime. Imported logs may hold times out of range; these are clamped."""
    return EPOCH + timedelta(microseconds=max(EARLIEST, min(at, LATEST)))


def iso(at: int) -> str:
    """ISO 8601 in UTC with six decimal digits, so that the text sorts by time."""
    return moment(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> int:
    """Parse the output of `iso`. Raises ValueError for a text without a time zone."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return micros(parsed)


def parse_day(text: str) -> int:
    """The first microsecond of a day in UTC, given as `2026-11-18`. Raises Invalid."""
    try:
        return from_iso(f"{text}T00:00:00Z")
    except ValueError as e:
        raise Invalid(f"{text!r} is not a day; use the form 2026-11-18") from e
