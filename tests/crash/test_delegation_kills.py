"""Servers are killed while a parent has children, and other servers finish all of them, each child once."""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import Server
from tests.contract.store_urls import new_place
from tests.crash.programs import wait_until
from tests.sampling import SOAK, limit

pytestmark = pytest.mark.crash
WORK = "echo begun >> BESIDE/begun; while [ ! -e BESIDE/go ]; do sleep 0.05; done; echo counted"
SHORT_WORK = "echo begun >> BESIDE/begun; sleep 1"
TASKS = ("Count to one", "Count to two", "Count to three")
MANY, KILLS = 200, 15


def scripts(home: Path, *, background: bool, tasks: Sequence[str] = TASKS, work: str = WORK) -> None:
    """A model that delegates tasks, and one that does a task."""
    home.mkdir()
    command = work.replace("BESIDE", str(home.parent))
    child = {"steps": [{"call": [{"name": "terminal", "arguments": {"command": command}}]}, {"say": "I have counted."}]}
    (home / "child.json").write_text(json.dumps(child))
    model = f"scripted:{home}/child.json"
    calls = [
        {"name": "delegate", "arguments": {"task": task, "model": model, "background": background}} for task in tasks
    ]
    replies = [{"say": "All have counted."}] * (1 + background * len(tasks))
    (home / "parent.json").write_text(json.dumps({"steps": [{"call": calls}, *replies]}))


def begin(http: httpx.Client) -> str:
    session_id = str(http.post("/v1/sessions", json={}).raise_for_status().json()["id"])
    http.post(f"/v1/sessions/{session_id}/turns", json={"input": "Please count"}).raise_for_status()
    return session_id


def read(http: httpx.Client, path: str) -> Any:
    return http.get(path).raise_for_status().json()


def events(http: httpx.Client, session_id: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while more := read(http, f"/v1/sessions/{session_id}/events?limit=1000&after={len(found)}")["events"]:
        found += more
    return [event["body"] for event in found if event["kind"] == kind]


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kills", [1, 3] if SOAK else [2])
@pytest.mark.parametrize("background", [False, True])
def test_promise_30_a_killed_parent_and_its_children_continue_and_each_child_completes_once(
    tmp_path: Path, kills: int, *, background: bool
) -> None:
    home = tmp_path / "home"
    scripts(home, background=background)
    with Server(home, alone="parent") as server:
        with server.http() as http:
            parent = begin(http)
        wait_until(lambda: lines(tmp_path / "begun") == len(TASKS), "three children at work")
        for _ in range(kills):
            server.kill()
            server.restart()
        (tmp_path / "go").touch()
        with server.http() as http:
            children = read(http, f"/v1/sessions/{parent}")["children"]
            wait_until(lambda: all(events(http, one, "turn_ended") for one in children), "the end of the children")
            wait_until(lambda: delivered(http, parent) == sorted(children), "the completions")
            wait_until(lambda: read(http, f"/v1/sessions/{parent}")["state"] != "running", "the end of the parent")
            ended = read(http, f"/v1/sessions/{parent}")

            assert len(children) == len(TASKS)
            for child in children:
                shown = read(http, f"/v1/sessions/{child}")
                assert (shown["parent_id"], shown["delegated_by"], shown["source"]) == (parent, parent, "delegate")
                assert [event["outcome"] for event in events(http, child, "turn_ended")] == ["done"]
                assert len(events(http, child, "user_said")) == 1
            assert delivered(http, parent) == sorted(children), "each completion arrived exactly once"
            assert events(http, parent, "turn_ended")[0]["outcome"] == "done"
            assert ended["delegated_by"] is None
            tree = {one["id"] for one in read(http, "/v1/sessions?children=true")["sessions"]}
            assert tree == {parent, *children}
    assert lines(tmp_path / "begun") == len(TASKS), "no command ran twice"


def delivered(http: httpx.Client, parent: str) -> list[str]:
    """The children whose completions are in the parent's log, by result or by event."""
    found = [event["child_id"] for event in events(http, parent, "child_ended")]
    for event in events(http, parent, "tool_ended"):
        text = "".join(part.get("text", "") for part in event["parts"])
        if text.startswith("Sub-agent") and " finished" in text:
            found.append(text.split()[1])
    return sorted(found)


class Member(Server):
    """One of several servers of a store, which lets a session have many children."""

    def start(self) -> None:
        path = self.home / "config.toml"
        if "max_children" not in path.read_text():
            path.write_text(f"{path.read_text()}max_children = {MANY}\n")  # the file ends with the section `agent`
        super().start()


@contextmanager
def members(kind: str, folder: Path, count: int) -> Iterator[list[Member]]:
    """Servers that share a store; on PostgreSQL each has a home of its own."""
    store = "" if kind == "sqlite" else new_place(kind, folder, migrated=True)
    homes = [folder / ("home" if kind == "sqlite" else f"home{n}") for n in range(count)]
    scripts(homes[0], background=True, tasks=[f"Count to {n}" for n in range(MANY)], work=SHORT_WORK)
    with ExitStack() as stack:
        yield [stack.enter_context(Member(home, alone="parent", store=store)) for home in homes]


@pytest.mark.soak
@pytest.mark.timeout(limit(10))
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_promise_30_every_completion_arrives_once_while_servers_of_one_store_are_killed(
    tmp_path: Path, kind: str
) -> None:
    chance = random.Random(kind)
    with members(kind, tmp_path, 3) as servers:
        with servers[0].http() as http:
            parent = begin(http)
        for number in range(KILLS):
            wanted = MANY * number // KILLS
            wait_until(lambda wanted=wanted: lines(tmp_path / "begun") > wanted, f"{wanted} children at work")
            server = chance.choice(servers)
            server.kill()
            server.restart()
        with servers[0].http() as http:
            wait_until(lambda: len(delivered(http, parent)) >= MANY, "the completions", 200)
            wait_until(lambda: read(http, f"/v1/sessions/{parent}")["state"] != "running", "the end of the parent")
            children = read(http, f"/v1/sessions/{parent}")["children"]
            assert len(children) == MANY
            assert delivered(http, parent) == sorted(children), "each completion arrived exactly once"
            for child in children:
                assert [event["outcome"] for event in events(http, child, "turn_ended")] == ["done"]
                assert len(events(http, child, "user_said")) == 1
    assert lines(tmp_path / "begun") <= MANY, "no command ran twice"
