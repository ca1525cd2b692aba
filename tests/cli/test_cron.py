"""`holdfast cron add` as a person sees it."""

import pytest

from tests.cli.conftest import Holdfast


@pytest.mark.parametrize(
    ("options", "tz", "expected"),
    [
        (("--timezone", "Europe/Berlin"), "America/New_York", "-01-01 08:00 Europe/Berlin"),
        (("--timezone", "UTC"), "America/New_York", "-01-01 08:00 UTC"),
        ((), "America/New_York", "-01-01 08:00 EST"),
        ((), "Asia/Kolkata", "-01-01 08:00 IST"),
    ],
)
def test_the_first_run_of_a_schedule_is_shown_in_its_own_time_zone_by_name(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], tz: str, expected: str
) -> None:
    monkeypatch.setenv("TZ", tz)
    added = holdfast("cron", "add", "0 8 1 1 *", "Happy new year", *options)

    assert added.out.strip().endswith(expected)
