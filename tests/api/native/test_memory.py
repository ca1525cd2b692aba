"""Facts over the API, and sessions of the API that have a memory."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api import native_client
from tests.api.serving import Server, ask, session


def test_facts_are_added_listed_corrected_and_forgotten(own: Server) -> None:
    with native_client.client(own) as http:
        first = http.post("/v1/memory", json={"text": "likes tea"})
        assert (first.status_code, first.json()["id"], first.json()["owner"]) == (201, "fact-1", "local")
        http.post("/v1/memory", json={"text": "Ann likes 茶", "owner": "telegram:1"})
        http.post("/v1/memory", json={"text": "uses make", "scope": "project", "project": "/srv/p"})

        page = http.get("/v1/memory", params={"limit": 2}).json()
        rest = http.get("/v1/memory", params={"limit": 2, "cursor": page["next"]}).json()
        assert [one["id"] for one in [*page["facts"], *rest["facts"]]] == ["fact-3", "fact-2", "fact-1"]
        assert rest["next"] is None
        assert listed(http, owner="telegram:1") == ["Ann likes 茶"]
        assert listed(http, q="茶") == ["Ann likes 茶"]
        assert listed(http, scope="project") == ["uses make"]

        assert http.patch("/v1/memory/fact-1", json={"text": "likes coffee"}).json()["id"] == "fact-4"
        assert http.patch("/v1/memory/1", json={"text": "likes milk"}).status_code == 409
        assert [one["text"] for one in http.get("/v1/memory/1").json()["versions"]] == ["likes tea", "likes coffee"]
        assert http.delete("/v1/memory/4").json() == {"id": "fact-4", "versions": 2}
        assert http.delete("/v1/memory/4").status_code == 404
        assert listed(http, q="coffee") == []
        assert listed(http, history="true").count("") == 2


def listed(http: httpx.Client, **query: str) -> list[str]:
    return [one["text"] for one in http.get("/v1/memory", params=query).json()["facts"]]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"text": ""}, 400),
        ({"text": " \u0000 "}, 400),
        ({"text": "x" * 1001}, 400),
        ({"text": "x", "scope": "mine"}, 400),
        ({"text": "x", "scope": "project"}, 400),
        ({"text": "x", "owner": ""}, 400),
        ({"text": "x", "owner": "bob"}, 400),
        ({"text": "x", "owner": "telegram:\u0000"}, 400),
        ({"text": "x", "scope": "project", "project": "/a\u0000b"}, 400),
        ({"text": "x", "more": 1}, 400),
    ],
)
def test_wrong_input_is_refused(own: Server, body: dict[str, object], status: int) -> None:
    with native_client.client(own) as http:
        assert http.post("/v1/memory", json=body).status_code == status
        assert http.get("/v1/memory").json()["facts"] == []
        for path in ("/v1/memory/9", "/v1/memory/x", "/v1/memory/fact-99999999999999999999"):
            assert http.get(path).status_code == 404, path
            assert http.delete(path).status_code == 404, path


@pytest.fixture
def remembering(tmp_path: Path, vendor: str) -> Iterator[Server]:
    """A server whose API sessions have a memory."""
    with Server(tmp_path / "home", vendor=vendor) as running:
        running.stop()
        config = running.home / "config.toml"
        config.write_text(config.read_text().replace("[agent]", '[agent]\nmemory = ["api"]'))
        running.restart()
        yield running


def test_users_of_the_api_are_apart(remembering: Server) -> None:
    with native_client.client(remembering) as http:
        ask(http, 'use tool remember {"fact": "of Ann"}', user="ann")
        ask(http, 'use tool remember {"fact": "of nobody"}')
        found = {one["text"]: one["owner"] for one in http.get("/v1/memory").json()["facts"]}
        recalled = [
            ask(http, 'use tool recall_memory {"query": "of"}', headers={"x-session-id": name}, user=name)
            for name in ("ben", "ann")
        ]
        logs = [http.get(f"/v1/sessions/{session(one)}/events").text for one in recalled]

    assert found.get("of nobody") == "api:", found
    assert found["of Ann"].startswith("api:")
    assert found["of Ann"] != "api:"
    assert ["of Ann" in text for text in logs] == [False, True]
    assert all("of nobody" not in text for text in logs)


def test_sessions_of_the_api_have_none_by_default(upstream: Server) -> None:
    with native_client.client(upstream) as http:
        ask(http, 'use tool remember {"fact": "of Ann"}')
        assert http.get("/v1/memory").json()["facts"] == []
