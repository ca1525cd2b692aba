"""When a session is due for a reset, against a simple model that walks through the minutes."""

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.reset.policy import QUIET, ResetPolicies, ResetPolicy, due, horizon, last_hour, next_due
from holdfast.model.times import DAY, MINUTE, micros, moment

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN, *, fold: int = 0) -> int:
    return micros(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold))


def policy(mode: str = "daily", *, idle: int = 120, hour: int = 6, zone: ZoneInfo = BERLIN) -> ResetPolicy:
    return ResetPolicy(mode, idle, hour, zone)  # type: ignore[arg-type]


def rule(found) -> str | None:
    return None if found is None else found.rule


# examples


@pytest.mark.parametrize(
    ("mode", "active", "now", "expected"),
    [
        ("none", "2026-01-01 12:00", "2026-05-01 12:00", None),
        ("idle", "2026-05-01 12:00", "2026-05-01 13:59", None),
        ("idle", "2026-05-01 12:00", "2026-05-01 14:00", "idle"),
        ("idle", "2026-05-01 05:00", "2026-05-01 06:30", None),
        ("daily", "2026-05-01 22:00", "2026-05-02 05:59", None),
        ("daily", "2026-05-01 22:00", "2026-05-02 06:00", "daily"),
        ("daily", "2026-05-02 05:30", "2026-05-02 06:00", None),
        ("daily", "2026-05-02 05:30", "2026-05-02 06:29", None),
        ("daily", "2026-05-02 05:30", "2026-05-02 06:30", "daily"),
        ("daily", "2026-05-02 06:00", "2026-05-03 05:59", None),
        ("daily", "2026-05-02 06:20", "2026-05-02 23:00", None),
        ("daily", "2026-04-01 12:00", "2026-05-02 05:00", "daily"),
        ("both", "2026-05-02 05:30", "2026-05-02 06:30", "daily"),
        ("both", "2026-05-01 22:00", "2026-05-02 06:00", "idle"),
        ("both", "2026-05-02 03:50", "2026-05-02 07:00", "idle"),
        ("both", "2026-05-02 04:30", "2026-05-02 07:00", "daily"),
    ],
)
def test_what_is_due(mode: str, active: str, now: str, expected: str | None) -> None:
    assert rule(due(policy(mode), at(active), at(now))) == expected


def test_a_reset_says_its_reason() -> None:
    asleep = due(policy("idle"), at("2026-05-01 12:00"), at("2026-05-03 00:00"))
    daily = due(policy("daily"), at("2026-05-01 12:00"), at("2026-05-02 06:05"))

    assert asleep.reason == "no message for 36 h"
    assert (daily.reason, daily.since) == ("the daily reset of 06:00 (Europe/Berlin)", at("2026-05-02 06:00"))


def test_an_hour_that_daylight_saving_skips_takes_effect_at_the_change() -> None:
    """In Berlin 02:00 to 03:00 is missing on 29 March 2026."""
    two = policy(hour=2)
    active = at("2026-03-28 20:00")

    assert due(two, active, at("2026-03-29 01:59")) is None
    assert rule(due(two, active, at("2026-03-29 03:00"))) == "daily"
    assert last_hour(two, at("2026-03-29 12:00")) == at("2026-03-29 03:00")


def test_an_hour_that_daylight_saving_repeats_takes_effect_once() -> None:
    """In Berlin 02:00 to 03:00 comes twice on 25 October 2026."""
    two = policy(hour=2)
    first, second = at("2026-10-25 02:00"), at("2026-10-25 02:00", fold=1)

    assert second - first == 60 * MINUTE
    assert rule(due(two, at("2026-10-24 20:00"), first)) == "daily"
    assert due(two, first, second + 30 * MINUTE) is None
    assert due(two, first, at("2026-10-26 01:59")) is None


def test_a_machine_that_was_suspended_for_days_has_one_reset_due() -> None:
    active, woken = at("2026-05-01 12:00"), at("2026-05-08 09:00")

    assert rule(due(policy("daily"), active, woken)) == "daily"
    assert due(policy("both"), woken, woken + MINUTE) is None


def test_a_clock_that_is_set_back_over_the_hour_makes_nothing_due_twice() -> None:
    reset = at("2026-05-02 06:05")

    for now in ("2026-05-02 05:00", "2026-05-02 06:00", "2026-05-02 06:06", "2026-05-01 06:00", "2026-05-03 05:59"):
        assert due(policy("daily"), reset, at(now)) is None


def test_the_policy_of_a_channel_is_that_of_its_longest_prefix() -> None:
    every, telegram, one = policy("none"), policy("idle"), policy("daily")
    known = ResetPolicies(every, {"telegram": telegram, "telegram:42": one})

    assert known.of("api:key") == every
    assert known.of("telegram:7:thread") == telegram
    assert known.of("telegram:42") == known.of("telegram:42:thread") == one
    assert known.of("telegram:421") == telegram
    assert known.of("telegrams:42") == every


def test_if_nothing_can_be_due_nothing_is_queried() -> None:
    assert ResetPolicies(policy("none"), {"api": policy("none")}).horizon(at("2026-05-01 12:00")) is None


# against a model

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # changes at midnight
    "Australia/Lord_Howe",  # by half an hour
    "Asia/Kathmandu",
    "Africa/Casablanca",  # twice more around Ramadan
    "UTC",
]
policies = st.builds(
    ResetPolicy,
    mode=st.sampled_from(["none", "idle", "daily", "both"]),
    idle_minutes=st.integers(1, 3000),
    at_hour=st.integers(0, 23),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
)


@cache
def hours(zone: ZoneInfo, hour: int, year: int, month: int) -> tuple[int, ...]:
    """Of each day, the first minute at which its clocks show the hour or later. By walking through the minutes."""
    found: dict[object, int] = {}
    minute = datetime(year, month, 1, tzinfo=UTC) - timedelta(days=2)
    for _ in range(36 * 24 * 60 // 15):
        local = minute.astimezone(zone)
        if local.hour >= hour and local.date() not in found:
            found[local.date()] = micros(minute)
        minute += timedelta(minutes=15)  # every zone here changes at a quarter
    first, last = sorted(found)[0], sorted(found)[-1]
    return tuple(instant for day, instant in found.items() if day not in (first, last))


@st.composite
def instants(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Two instants of one month, the month with them."""
    year, month = draw(st.integers(2015, 2030)), draw(st.integers(1, 12))
    start = micros(datetime(year, month, 1, tzinfo=UTC))
    one, other = (draw(st.integers(0, 31 * DAY)) for _ in range(2))
    return start + min(one, other), start + max(one, other), year, month


@given(policies, instants())
def test_due_resets_equal_those_of_a_simple_model(chosen: ResetPolicy, when: tuple[int, int, int, int]) -> None:
    active, now, year, month = when
    since = []
    if chosen.by_idleness and now - active >= chosen.idle_minutes * MINUTE:
        since.append((active + chosen.idle_minutes * MINUTE, "idle"))
    passed = [hour for hour in hours(chosen.zone, chosen.at_hour, year, month) if active < hour <= now]
    if chosen.by_day and passed and now - active >= QUIET:
        since.append((max(passed[-1], active + QUIET), "daily"))

    found = due(chosen, active, now)

    assert ((found.since, found.rule) if found else None) == min(since, default=None)


@given(policies, instants())
def test_the_horizon_separates_due_sessions_from_others(chosen: ResetPolicy, when: tuple[int, int, int, int]) -> None:
    active, now, _, _ = when
    limit = horizon(chosen, now)

    assert (due(chosen, active, now) is not None) == (limit is not None and active <= limit)
    if limit is not None:
        assert due(chosen, limit, now) is not None
        assert due(chosen, limit + 1, now) is None


@given(policies, instants())
def test_the_announced_reset_happens_then_and_not_before(chosen: ResetPolicy, when: tuple[int, int, int, int]) -> None:
    active = when[0]
    then = next_due(chosen, active)

    if then is None:
        assert chosen.mode == "none"
    else:
        assert due(chosen, active, then) is not None
        assert due(chosen, active, then - 1) is None


@given(
    policies,
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.integers(0, 3 * DAY)),
            st.tuples(st.just("say"), st.just(0)),
            st.tuples(st.just("set"), st.integers(-400 * DAY, 400 * DAY)),
        ),
        max_size=40,
    ),
)
def test_whatever_the_clock_does_no_active_session_is_reset_and_none_twice(
    chosen: ResetPolicy, story: list[tuple[str, int]]
) -> None:
    """A sweep after each event; the activity is computed as in a session: it never goes backwards."""
    now = active = micros(datetime(2026, 3, 20, tzinfo=UTC))
    for what, span in story:
        if what != "say":
            now += span
        else:
            active = max(active, now)
        found = due(chosen, active, now)
        if found is None:
            continue
        quiet = now - active
        assert quiet >= (QUIET if found.rule == "daily" else chosen.idle_minutes * MINUTE)
        active = max(active, now)
        assert due(chosen, active, now) is None, "a reset is no longer due after it has taken place"
        assert due(chosen, active, now - DAY) is None, "also for a clock that is set back"


def test_every_zone_of_the_machine_has_the_hour() -> None:
    """Samoa had no 30 December 2011 at all."""
    apia = policy(hour=6, zone=ZoneInfo("Pacific/Apia"))
    for days in range(40):
        now = at("2011-12-15 12:00", ZoneInfo("Pacific/Apia")) + days * DAY
        assert 0 <= now - last_hour(apia, now) <= DAY
        assert moment(last_hour(apia, now)).astimezone(apia.zone).hour == 6
