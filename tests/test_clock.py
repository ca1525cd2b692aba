"""The machine's time zone."""

from datetime import datetime, timedelta

import pytest

from holdfast.clock import SystemClock, load_zone

SUMMER = datetime(2026, 7, 1, 12)


@pytest.mark.parametrize(
    ("name", "tz", "offset"),
    [
        ("Europe/Berlin", "", 2),
        ("Europe/Berlin", "America/New_York", 2),
        ("local", "America/New_York", -4),
        ("local", ":Asia/Tokyo", 9),
    ],
)
def test_a_zone_is_that_of_its_name_or_of_the_environment(name: str, tz: str, offset: int) -> None:
    assert SUMMER.replace(tzinfo=load_zone(name, tz)).utcoffset() == timedelta(hours=offset)


@pytest.mark.parametrize("tz", ["", "no such zone", "../etc/passwd"])
def test_without_a_name_the_zone_is_that_of_the_machine(tz: str) -> None:
    assert SUMMER.replace(tzinfo=load_zone("local", tz)).utcoffset() == SUMMER.astimezone().utcoffset()


def test_the_clock_advances() -> None:
    clock = SystemClock()

    assert clock.now() <= clock.now()
    assert clock.monotonic() <= clock.monotonic()
