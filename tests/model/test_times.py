from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.times import DAY, MINUTE, SECOND, from_iso, iso, micros, moment

LATEST = micros(datetime.max.replace(tzinfo=UTC))
INSTANTS = st.integers(0, LATEST)


@given(INSTANTS)
def test_an_instant_survives_the_iso_form(at: int) -> None:
    assert from_iso(iso(at)) == at


@given(INSTANTS)
def test_an_instant_survives_datetime(at: int) -> None:
    assert micros(moment(at)) == at
    assert moment(at).tzinfo is UTC


@given(INSTANTS, INSTANTS)
def test_the_iso_form_sorts_by_time(one: int, two: int) -> None:
    assert (iso(one) < iso(two)) == (one < two)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1, "1970-01-01T00:00:00.000001Z"),
        (1_800_000_000 * SECOND, "2027-01-15T08:00:00.000000Z"),
        (951_782_400 * SECOND + 5 * MINUTE, "2000-02-29T00:05:00.000000Z"),
    ],
)
def test_the_iso_form_has_all_six_digits_and_names_utc(at: int, text: str) -> None:
    assert iso(at) == text


@pytest.mark.parametrize("text", ["2027-01-15T08:00:00Z", "2027-01-15T09:30:00+01:30", "2027-01-14T22:00:00.000-10:00"])
def test_any_time_zone_is_parsed(text: str) -> None:
    assert from_iso(text) == 1_800_000_000 * SECOND


@pytest.mark.parametrize("text", ["2027-01-15T08:00:00", "2027-01-15", "yesterday", ""])
def test_a_text_without_a_time_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_iso(text)


@given(st.datetimes(timezones=st.just(timezone(timedelta(hours=5, minutes=45)))))
def test_no_microsecond_is_lost_to_rounding(time: datetime) -> None:
    assert moment(micros(time)) == time


def test_the_units_are_consistent() -> None:
    assert DAY == 24 * 60 * MINUTE == 86_400 * SECOND


def test_an_instant_out_of_range_is_shown_as_the_nearest_valid_one() -> None:
    assert (iso(2**62), moment(-(2**62)).year) == ("9999-12-31T23:59:59.999999Z", 1)
