"""Every session is ended, in quarantine, somebody's, or waiting; what is none of these is leaked."""

import pytest

from holdfast.engine.census import take_census
from holdfast.store.sessions import Count

LIVING = {"worker-1"}
PLACES = [
    ("ended", Count("chat", "reaped", 0, 0, None, 1), "ended"),
    ("held or owned by a living worker", Count("chat", None, 0, 0, "worker-1", 1), "owned"),
    ("in mid-turn with a living worker", Count("api", None, 0, 1, "worker-1", 1), "owned"),
    ("of a worker that is gone", Count("chat", None, 0, 0, "worker-2", 1), "leaked"),
    ("in mid-turn with a worker that is gone", Count("api", None, 0, 1, "worker-2", 1), "leaked"),
    ("in mid-turn with nobody", Count("api", None, 0, 1, None, 1), "leaked"),
    ("open, without a turn and without an owner", Count("gateway", None, 0, 0, None, 1), "waiting"),
    ("in quarantine in mid-turn", Count("api", None, 1, 1, None, 1), "quarantined"),
]


@pytest.mark.parametrize(("count", "place"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_promise_9_where_a_session_is_counted(count: Count, place: str) -> None:
    census = take_census([count], LIVING)

    places = {name: getattr(census, name) for name in ("ended", "owned", "leaked", "waiting", "quarantined")}
    assert places == {**dict.fromkeys(places, 0), place: 1}
    assert census.open == (place != "ended")


def test_the_parts_add_up_and_the_most_frequent_come_first() -> None:
    rows = [
        Count("cron", "cron_complete", 0, 0, None, 1275),
        Count("chat", "cli_close", 0, 0, None, 229),
        Count("api", None, 0, 0, "worker-1", 3),
        Count("chat", "reaped", 0, 0, None, 640),
        Count("chat", None, 0, 0, "worker-2", 2),
    ]

    census = take_census(rows, LIVING)

    assert (census.total, census.open, census.ended, census.leaked) == (2149, 5, 2144, 2)
    assert list(census.by_reason.items()) == [("cron_complete", 1275), ("reaped", 640), ("cli_close", 229)]
    assert census.by_source == {"cron": 1275, "chat": 871, "api": 3}
