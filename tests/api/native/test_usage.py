"""Usage, cost and budgets over the API, with a model server that says what its replies cost."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api import native_client
from tests.api.serving import Server, ask, session

BUDGET = '[budget]\nsession = 0.002\n[prices."openai:gpt-fake"]\ninput = 1000.0\noutput = 0.0\n'


@pytest.fixture
def limited(tmp_path: Path, vendor: str) -> Iterator[Server]:
    """A server whose sessions have a budget for one call."""
    with Server(tmp_path / "home", vendor=vendor) as running:
        running.stop()
        config = running.home / "config.toml"
        config.write_text(config.read_text() + BUDGET)
        running.restart()
        yield running


def test_promise_31_a_used_up_budget_is_402_and_a_person_can_raise_it(limited: Server) -> None:
    with native_client.client(limited) as http:
        one = session(ask(http, "hello"))
        refused = ask(http, "hello again", headers={"x-session-id": one})
        found = http.get(f"/v1/sessions/{one}/usage").json()

        assert refused.status_code == 402, refused.text
        assert refused.json()["error"]["code"] == "budget_exceeded"
        assert refused.json()["error"]["type"] == "insufficient_quota"
        assert "the budget of this session is used up" in refused.json()["error"]["message"]
        assert [limit["name"] for limit in found["limits"]] == ["session"]
        assert found["total"]["calls"] == 1
        assert found["total"]["cost"] == found["limits"][0]["spent"] >= 0.002

        raised = http.post(f"/v1/sessions/{one}/budget", json={"amount": 5})
        assert raised.json()["raised"] == 5
        assert session(ask(http, "now?", headers={"x-session-id": one})) == one
        assert http.post(f"/v1/sessions/{one}/budget", json={"amount": -1}).status_code == 400


def test_promise_31_the_limit_of_a_user_is_that_of_the_name_in_requests(limited: Server) -> None:
    limited.stop()
    config = limited.home / "config.toml"
    config.write_text(config.read_text().replace("session = 0.002", 'users = {"api:ann@example.com" = 0.002}'))
    limited.restart()
    with native_client.client(limited) as http:
        codes = [ask(http, "hello", user=who).status_code for who in ("ann@example.com", "bob") * 2]

    assert codes == [200, 200, 402, 200]


def test_usage_is_grouped_over_a_range_as_json_and_csv(own: Server) -> None:
    with native_client.client(own) as http:
        ask(http, "one", user="=cmd|x")
        ask(http, "two")
        by_day = http.get("/v1/usage").json()
        grouped = http.get("/v1/usage", params={"by": "model,source"}).json()
        table = http.get("/v1/usage.csv", params={"by": "user"})

    assert [one["day"] for one in by_day["groups"]] == [by_day["to"]]
    assert by_day["total"]["calls"] == by_day["total"]["unpriced_calls"] == 2
    assert by_day["total"]["cost"] is None, "nobody knows what a script costs"
    assert [(one["model"], one["source"], one["turns"]) for one in grouped["groups"]] == [("scripted:echo", "api", 2)]
    assert table.headers["content-type"].startswith("text/csv")
    assert all(row["calls"].isdigit() for row in csv.DictReader(io.StringIO(table.text)))


def test_a_user_is_the_same_in_all_their_sessions(own: Server) -> None:
    with native_client.client(own) as http:
        for name in ("first", "second"):
            ask(http, "for Ann", user="ann", headers={"x-session-key": name})
            ask(http, "for nobody", headers={"x-session-key": f"of-nobody-{name}"})
        groups = http.get("/v1/usage", params={"by": "user"}).json()["groups"]

    nobody, ann = groups
    assert (nobody["user"], nobody["turns"], ann["turns"]) == ("", 2, 2)
    assert re.fullmatch("api:[0-9a-f]{16}", ann["user"])


@pytest.mark.parametrize(
    "query", ["from=yesterday", "by=colour", "by=day,day", "from=2026-02-01&to=2026-01-01", "format=xml", "day=1"]
)
def test_a_senseless_range_is_refused(http: httpx.Client, query: str) -> None:
    assert http.get(f"/v1/usage?{query}").status_code == 400


def test_a_session_without_a_limit_has_nothing_to_raise(http: httpx.Client) -> None:
    one = session(ask(http, "hello"))

    assert http.post(f"/v1/sessions/{one}/budget", json={"amount": 1}).json()["error"]["code"] == "invalid"
    assert http.get("/v1/sessions/nobody/usage").status_code == 404
