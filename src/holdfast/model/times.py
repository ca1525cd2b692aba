"""Instants as whole microseconds since 1970 in UTC, and their ISO 8601 form."""

from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND


class Clock(Protocol):
    """Time is handed in, so that tests own it."""

    def now(self) -> int:
        """The instant, in microseconds since 1970 UTC. May jump when somebody sets the clock."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""


def micros(moment: datetime) -> int:
    """The instant of an aware datetime."""
    return (moment - EPOCH) // timedelta(microseconds=1)


EARLIEST = micros(datetime.min.replace(tzinfo=UTC))
LATEST = micros(datetime.max.replace(tzinfo=UTC))
"""The first and the last instant that is a date."""


def moment(at: int) -> datetime:
    """The instant as a date; one that no date can tell, as an imported log may hold, as the nearest that can."""
    return EPOCH + timedelta(microseconds=max(EARLIEST, min(at, LATEST)))


def iso(at: int) -> str:
    """ISO 8601 in UTC with all six digits, so that the text sorts as the time does."""
    return moment(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> int:
    """The instant named by `iso`. Raises ValueError for a text without a time zone."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return micros(parsed)
