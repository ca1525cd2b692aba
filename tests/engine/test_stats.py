"""Every session is ended, quarantined, owned or waiting; any other is leaked."""

import pytest

from holdfast.engine.stats import compute_stats
from holdfast.store.repos.session_list import SessionCount

LIVE_WORKERS = {"worker-1"}
PLACES = [
    ("ended", SessionCount("chat", "reaped", 0, 0, None, 1), "ended"),
    ("held or owned by a living worker", SessionCount("chat", None, 0, 0, "worker-1", 1), "owned"),
    ("in mid-turn with a living worker", SessionCount("api", None, 0, 1, "worker-1", 1), "owned"),
    ("of a worker that is gone", SessionCount("chat", None, 0, 0, "worker-2", 1), "leaked"),
    ("in mid-turn with a worker that is gone", SessionCount("api", None, 0, 1, "worker-2", 1), "leaked"),
    ("in mid-turn with nobody", SessionCount("api", None, 0, 1, None, 1), "leaked"),
    ("open, without a turn and without an owner", SessionCount("gateway", None, 0, 0, None, 1), "waiting"),
    ("in quarantine in mid-turn", SessionCount("api", None, 1, 1, None, 1), "quarantined"),
]


@pytest.mark.parametrize(("count", "place"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_promise_9_the_state_by_which_a_session_is_counted(count: SessionCount, place: str) -> None:
    stats = compute_stats([count], LIVE_WORKERS)

    places = {name: getattr(stats, name) for name in ("ended", "owned", "leaked", "waiting", "quarantined")}
    assert places == {**dict.fromkeys(places, 0), place: 1}
    assert stats.open == (place != "ended")


def test_the_parts_add_up_and_the_most_frequent_come_first() -> None:
    rows = [
        SessionCount("cron", "cron_complete", 0, 0, None, 1275),
        SessionCount("chat", "cli_close", 0, 0, None, 229),
        SessionCount("api", None, 0, 0, "worker-1", 3),
        SessionCount("chat", "reaped", 0, 0, None, 640),
        SessionCount("chat", None, 0, 0, "worker-2", 2),
    ]

    stats = compute_stats(rows, LIVE_WORKERS)

    assert (stats.total, stats.open, stats.ended, stats.leaked) == (2149, 5, 2144, 2)
    assert list(stats.by_reason.items()) == [("cron_complete", 1275), ("reaped", 640), ("cli_close", 229)]
    assert stats.by_source == {"cron": 1275, "chat": 871, "api": 3}
