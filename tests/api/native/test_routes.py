"""The native routes: sessions, turns, questions, contexts, processes, and the store as a whole."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api import native_client
from tests.api.native_client import begin, said, say, turn, wait_for_end
from tests.api.serving import BRISKLY, Server, ask, session
from tests.crash.programs import wait_until


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with native_client.client(server) as opened:
        yield opened


def command(server: Server, *arguments: str) -> Any:
    line = [sys.executable, "-m", "holdfast", "--home", str(server.home), *arguments, "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def test_the_api_and_the_command_show_the_same_session(server: Server, http: httpx.Client) -> None:
    one = begin(http, title="The first")
    said(http, one, "hello")

    listed = http.get("/v1/sessions").json()["sessions"]
    shown = command(server, "sessions", "show", one)

    assert [found | {"plan": [], "goal": None} for found in listed if found["id"] == one] == [
        http.get(f"/v1/sessions/{one}").json()
    ]
    assert shown == http.get(f"/v1/sessions/{one}").json() | {
        "messages": http.get(f"/v1/sessions/{one}/messages").json()["messages"]
    }
    assert http.get("/v1/sessions/The first").json()["id"] == one
    assert http.get(f"/v1/sessions/{one[:20]}").json()["id"] == one


def test_the_api_and_the_command_show_the_current_plan(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("tools"))
    said(http, one, 'use tool todo {"items": [{"content": "Dig", "status": "in_progress"}]}')

    plan = [{"content": "Dig", "status": "in_progress"}]
    assert http.get(f"/v1/sessions/{one}").json()["plan"] == plan
    assert command(server, "sessions", "show", one)["plan"] == plan


def test_a_list_has_pages_and_filters(server: Server, http: httpx.Client) -> None:
    made = {begin(http, model=server.model("fails"), title="paged") for _ in range(5)}
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = http.get("/v1/sessions", params={"limit": 2, "model": server.model("fails"), **cursor}).json()
        found += [one["id"] for one in page["sessions"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}

    assert sorted(found) == sorted(made)
    assert http.get("/v1/sessions", params={"source": "chat"}).json() == {"sessions": [], "next": None}
    assert http.get("/v1/sessions", params={"cursor": "x"}).json()["error"]["code"] == "invalid"


def test_a_key_names_the_same_session_as_the_header(http: httpx.Client) -> None:
    one = begin(http, key="notes", system="Be brief.")
    again = http.post("/v1/sessions", json={"key": "notes"})
    spoken = ask(http, "hello", headers={"x-session-key": "notes"})

    assert (again.status_code, again.json()["id"]) == (200, one)
    assert session(spoken) == one


def test_title_model_and_pin_can_be_changed(http: httpx.Client) -> None:
    one = begin(http)

    changed = http.patch(f"/v1/sessions/{one}", json={"title": "Now", "pinned": True, "model": "scripted:tools"})

    found = changed.json()
    assert (found["title"], found["pinned"], found["model"]) == ("Now", True, "scripted:tools")
    assert http.patch(f"/v1/sessions/{one}", json={"title": "\n"}).json()["error"]["code"] == "invalid"
    assert http.patch(f"/v1/sessions/{one}", json={"model": "gpt-9"}).status_code == 404
    assert http.patch(f"/v1/sessions/{one}", json={"seq": 9}).json()["error"]["param"] == "seq"


def test_a_session_is_rewound_with_its_files(server: Server, http: httpx.Client, tmp_path: Path) -> None:
    one, file = begin(http, model="scripted:tools"), tmp_path / "a.txt"
    said(http, one, f'use tool write_file {{"path": "{file}", "content": "new"}}')

    planned = http.post(f"/v1/sessions/{one}/rewind", json={"preview": True}).json()
    assert file.read_text() == "new" and not planned["done"]
    done = http.post(f"/v1/sessions/{one}/rewind", json={"what": "files"}).json()

    assert [(found["path"], found["action"]) for found in done["files"]] in (
        [(str(file), "remove")],
        [(str(file), "skip")],  # in bubblewrap, where /tmp is private
    )
    assert done["preview"] == planned["preview"]
    refused = http.post(f"/v1/sessions/{one}/rewind", json={"turns": 9}).json()["error"]
    assert refused["code"] == "invalid"


def test_the_permission_mode_is_chosen_and_changed(http: httpx.Client) -> None:
    one = begin(http, mode="plan")

    assert http.get(f"/v1/sessions/{one}").json()["mode"] == "plan"
    assert http.patch(f"/v1/sessions/{one}", json={"mode": "trusted"}).json()["mode"] == "trusted"
    assert http.patch(f"/v1/sessions/{one}", json={"mode": "yolo"}).json()["error"]["param"] == "mode"
    why = http.get(f"/v1/sessions/{one}/why").json()
    assert [(found["what"], found["evidence"]) for found in why["decisions"] if found["kind"] == "mode_changed"] == [
        ("the permission mode was changed from plan to trusted", "by the API")
    ]
    assert http.get(f"/v1/sessions/{begin(http)}").json()["mode"] == "edits"


def test_a_session_is_trashed_and_restored(http: httpx.Client) -> None:
    one = begin(http)
    said(http, one, "hello")

    deleted = http.delete(f"/v1/sessions/{one}")
    refused = http.post(f"/v1/sessions/{one}/turns", json={"input": "still there?"})
    trash = http.get("/v1/sessions", params={"trash": True}).json()["sessions"]
    restored = http.post(f"/v1/sessions/{one}/restore")

    assert deleted.json()["trashed_at"] is not None
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "session_not_found")
    assert one in [found["id"] for found in trash]
    assert restored.json()["trashed_at"] is None
    assert said(http, one, "and now?")["text"] == "You said: and now?"


def test_a_session_ends_and_is_reopened_and_forked(http: httpx.Client) -> None:
    one = begin(http)
    said(http, one, "hello")
    said(http, one, "more")

    ended = http.post(f"/v1/sessions/{one}/end").json()
    reopened = http.post(f"/v1/sessions/{one}/reopen").json()
    fork = http.post(f"/v1/sessions/{one}/fork", json={"at": 5, "title": "Branch"})

    assert (ended["state"], ended["end_reason"], reopened["state"]) == ("ended", "user", "waiting")
    assert fork.status_code == 201
    assert fork.headers["location"] == f"/v1/sessions/{fork.json()['id']}"
    assert (fork.json()["parent_id"], fork.json()["title"]) == (one, "Branch")
    branch = http.get(f"/v1/sessions/{fork.json()['id']}/messages").json()["messages"]
    assert [message["content"] for message in branch] == ["hello", "You said: hello"]
    assert http.post(f"/v1/sessions/{one}/fork", json={"at": 999}).json()["error"]["code"] == "invalid"


def test_a_turn_can_be_polled(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("brisk"))

    response = http.post(f"/v1/sessions/{one}/turns", json={"input": [{"type": "text", "text": "go"}]})
    first = response.json()["turn_id"]
    second = say(http, one, "and again")

    assert response.headers["location"] == f"/v1/sessions/{one}/turns/{first}"
    assert response.json()["state"] == "running"
    assert turn(http, one, second)["state"] == "queued"
    ended = wait_for_end(http, one, first)
    assert (ended["state"], ended["text"]) == ("done", BRISKLY)
    assert [message["role"] for message in ended["messages"]] == ["user", "assistant"]
    assert wait_for_end(http, one, second)["text"] == BRISKLY
    missing = http.get(f"/v1/sessions/{one}/turns/turn-0")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "turn_not_found")


def test_an_early_turn_of_a_long_log_is_found(server: Server, http: httpx.Client) -> None:
    one = begin(http)
    first = said(http, one, "the very first words")
    for n in range(130):  # over five hundred events
        last = said(http, one, f"more {n}")

    assert turn(http, one, first["id"]) == first
    assert turn(http, one, last["id"])["text"] == "You said: more 129"


def test_input_with_one_key_is_accepted_once_and_may_join_or_be_refused(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("slow"))
    first = say(http, one, "go", **{"Idempotency-Key": "k"})

    again = http.post(f"/v1/sessions/{one}/turns", json={"input": "go"}, headers={"Idempotency-Key": "k"})
    other = http.post(f"/v1/sessions/{one}/turns", json={"input": "stop"}, headers={"Idempotency-Key": "k"})
    busy = http.post(f"/v1/sessions/{one}/turns", json={"input": "hey"}, headers={"X-Busy": "reject"})
    joining = say(http, one, "by the way", **{"X-Busy": "steer"})

    assert (again.json()["turn_id"], again.json()["state"]) == (first, "repeated")
    assert (other.status_code, other.json()["error"]["code"]) == (422, "key_reused")
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "session_busy")
    wait_for_end(http, one, first)
    assert turn(http, one, joining)["joined"] == first


def test_a_running_turn_is_interrupted_and_a_session_in_use_is_not_ended(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("silent"))
    running = say(http, one, "go")

    refused = [http.post(f"/v1/sessions/{one}/end"), http.delete(f"/v1/sessions/{one}")]
    doing = {found["id"]: found["doing"] for found in http.get("/v1/activity").json()["sessions"]}
    interrupted = http.post(f"/v1/sessions/{one}/interrupt").json()

    assert [response.json()["error"]["code"] for response in refused] == ["session_busy"] * 2
    assert doing[one] == "asking the model"
    assert interrupted["interrupted"] is True
    assert wait_for_end(http, one, running)["state"] == "interrupted"
    assert http.post(f"/v1/sessions/{one}/interrupt").json()["interrupted"] is False


def test_the_context_is_explained_compacted_and_restored(tmp_path: Path) -> None:
    with Server(tmp_path / "home", context_window=9000) as server, native_client.client(server) as http:
        one = begin(http)
        for n in range(6):
            said(http, one, f"marker {n} " + "word " * 400)

        compacted = http.post(f"/v1/sessions/{one}/compact", json={"about": "markers"}).json()
        shown = http.get(f"/v1/sessions/{one}/compact").json()
        undone = http.post(f"/v1/sessions/{one}/compact", json={"undo": True}).json()
        after = http.get(f"/v1/sessions/{one}/compact").json()
        why = http.get(f"/v1/sessions/{one}/why").json()
        told = command(server, "why", one)

    assert (compacted["compacted"], compacted["epoch"]) == (True, 1)
    [only] = shown["compactions"]
    assert (only["from_seq"], only["upto_seq"], only["undone"]) == (1, compacted["upto_seq"], False)
    assert only["summary"] == compacted["summary"]
    assert shown["context"]["last"]["epoch"] == 1
    assert undone == {"session_id": one, "epoch": 0, "undone": True}
    assert after["compactions"][0]["undone"] is True
    assert [decision["kind"] for decision in why["decisions"]] == ["compacted", "compaction_undone"]
    assert told == why | {"processes": told["processes"]}


def test_a_question_is_answered_through_the_api(tmp_path: Path) -> None:
    with Server(tmp_path / "home", approval_seconds=60) as server, native_client.client(server) as http:
        one = begin(http, model=server.model("asks"))
        running = say(http, one, "clean up")
        wait_until(lambda: bool(http.get(f"/v1/sessions/{one}/approvals").json()["approvals"]), "the question")
        [question] = http.get("/v1/approvals").json()["approvals"]

        place = f"/v1/sessions/{one}/approvals/{question['call_id']}"
        answered = http.post(place, json={"allowed": False, "reason": "keep it"})
        twice = http.post(place, json={"allowed": True, "turn_id": running})
        ended = wait_for_end(http, one, running)
        strange = http.post(f"/v1/sessions/{one}/approvals/call-0", json={"allowed": True})

    assert question["session_id"] == one and "rm -rf gone" in question["question"]
    assert answered.json() == {"session_id": one, "turn_id": running, "call_id": question["call_id"], "allowed": False}
    assert (twice.status_code, twice.json()["error"]["code"]) == (409, "conflict")
    assert "keep it" in json.dumps(ended["messages"]) and ended["text"] == "Asked."
    assert strange.status_code == 404


def test_open_questions_of_all_sessions_are_listed_and_answered_once(tmp_path: Path) -> None:
    with Server(tmp_path / "home", approval_seconds=60) as server, native_client.client(server) as http:
        one = begin(http, model=server.model("asks"))
        running = say(http, one, "clean up")
        wait_until(lambda: bool(http.get("/v1/questions").json()["questions"]), "the question")
        [question] = http.get("/v1/questions").json()["questions"]
        place = f"/v1/questions/{question['id']}"
        state = http.get(f"/v1/sessions/{one}").json()["state"]
        listed = http.get("/v1/sessions", params={"state": "asking"}).json()["sessions"]
        unclear = http.post(place, json={"answer": "perhaps"})
        nothing = http.post(place, json={})
        contrary = http.post(place, json={"allowed": False, "answer": "yes"})
        unsafe = http.post(place, json={"allowed": True, "scope": "always", "match": "tool"})
        answered = http.post(place, json={"answer": "no, keep it"})
        twice = http.post(place, json={"allowed": True})
        ended = wait_for_end(http, one, running)
        left = http.get("/v1/questions").json()

    assert question["command"] == "rm -rf gone" and question["tool"] == "terminal"
    assert [risk["part"] for risk in question["risks"]] == ["rm -rf gone"]
    assert question["requester"] == "API client" and question["workdir"] and question["session_id"] == one
    assert state == "asking" and [found["id"] for found in listed] == [one]
    assert (unclear.status_code, nothing.status_code, unsafe.status_code) == (400, 400, 400)
    assert contrary.status_code == 400 and "not both" in contrary.json()["error"]["message"]
    assert answered.json()["state"] == "denied"
    assert twice.status_code == 409 and "already answered by the API" in twice.json()["error"]["message"]
    assert "keep it" in json.dumps(ended["messages"])
    assert left == {"questions": [], "open": 0}


def test_a_killed_server_keeps_its_question_and_continues_when_another_process_answers(tmp_path: Path) -> None:
    with Server(tmp_path / "home", approval_seconds=300) as server:
        with native_client.client(server) as http:
            one = begin(http, model=server.model("asks"))
            running = say(http, one, "clean up")
            wait_until(lambda: bool(http.get("/v1/questions").json()["questions"]), "the question")
            [before] = http.get("/v1/questions").json()["questions"]
        server.kill()
        server.restart()
        with native_client.client(server) as http:
            wait_until(lambda: "recovered" in kinds(http, one), "the recovery")
            [after] = http.get("/v1/questions").json()["questions"]
            command = [sys.executable, "-m", "holdfast", "--home", str(server.home), "questions", "answer", after["id"]]
            subprocess.run([*command, "no, keep it"], check=True, capture_output=True)
            ended = wait_for_end(http, one, running)
            asked = kinds(http, one).count("approval_asked")

    assert after == before
    assert asked == 1
    assert "Approval was denied: keep it" in json.dumps(ended["messages"]) and ended["text"] == "Asked."


def test_a_goal_is_set_once_paused_resumed_and_cleared(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("silent"))
    place = f"/v1/sessions/{one}/goal"
    assert http.get(place).status_code == 404
    running = say(http, one, "wait")
    wait_until(lambda: turn(http, one, running)["state"] == "running", "the turn")

    queued = http.put(place, json={"text": "All tests pass", "max_turns": 3})
    repeated = http.put(place, json={"text": " All tests pass "})
    http.post(f"/v1/sessions/{one}/interrupt")
    wait_until(lambda: http.get(place).status_code == 200, "the goal")
    active = http.put(place, json={"text": "All tests pass"})
    paused = http.patch(place, json={"state": "paused"}).json()["goal"]["state"]
    resumed = http.patch(place, json={"state": "active"}).json()["goal"]["state"]
    cleared = http.delete(place).json()["goal"]
    again = http.delete(place)
    http.post(f"/v1/sessions/{one}/interrupt")
    wait_for_end(http, one, queued.json()["turn_id"])

    assert (queued.status_code, queued.json()["queued"], queued.json()["goal"]) == (202, True, None)
    assert (repeated.status_code, repeated.json()) == (202, queued.json())
    assert repeated.headers["location"] == queued.headers["location"]
    assert active.status_code == 200 and active.json()["goal"]["max_turns"] == 3
    assert (paused, resumed, cleared["state"]) == ("paused", "active", "cleared")
    assert again.status_code == 409
    assert kinds(http, one).count("goal_set") == 1


def test_a_goal_that_is_set_several_times_at_once_is_set_once(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("silent"))
    place = f"/v1/sessions/{one}/goal"

    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: http.put(place, json={"text": "All tests pass"}), range(8)))
    http.delete(place)
    http.post(f"/v1/sessions/{one}/interrupt")

    assert sorted(reply.status_code for reply in replies) == [200] * 7 + [202]
    assert (kinds(http, one).count("goal_set"), kinds(http, one).count("user_said")) == (1, 1)


def kinds(http: httpx.Client, session_id: str) -> list[str]:
    return [event["kind"] for event in http.get(f"/v1/sessions/{session_id}/events").json()["events"]]


def test_a_rule_created_by_an_answer_is_listed_and_revoked(tmp_path: Path) -> None:
    with Server(tmp_path / "home", approval_seconds=60) as server, native_client.client(server) as http:
        one = begin(http, model=server.model("asks"))
        running = say(http, one, "clean up")
        wait_until(lambda: bool(http.get("/v1/questions").json()["questions"]), "the question")
        [question] = http.get("/v1/questions").json()["questions"]
        http.post(f"/v1/questions/{question['id']}", json={"allowed": True, "scope": "always"})
        wait_for_end(http, one, running)
        [rule] = http.get("/v1/approval-rules").json()["rules"]
        revoked = http.delete(f"/v1/approval-rules/{rule['id']}")
        twice = http.delete(f"/v1/approval-rules/{rule['id']}")
        left = http.get("/v1/approval-rules").json()["rules"]
        all_ = http.get("/v1/approval-rules", params={"revoked": True}).json()["rules"]

    assert (rule["match"], rule["pattern"], rule["requester"]) == ("exact", "rm -rf gone", "API client")
    assert revoked.json()["revoked_by"] == "the API"
    assert twice.status_code == 409 and left == [] and len(all_) == 1


def test_processes_are_listed_read_and_ended(server: Server, http: httpx.Client) -> None:
    one = begin(http, model="scripted:tools")
    arguments = json.dumps({"command": "echo ready; exec sleep 600", "background": True})
    said(http, one, f"use tool terminal {arguments}")

    [process] = http.get(f"/v1/sessions/{one}/processes").json()["processes"]
    place = f"/v1/processes/{process['id']}"
    wait_until(lambda: "ready" in http.get(f"{place}/log").json()["output"], "its output")
    everything = [found["id"] for found in http.get("/v1/processes").json()["processes"]]
    ended = http.delete(place).json()

    assert process["id"] in everything
    assert http.get(place).json()["end_reason"] == ended["end_reason"] != ""
    assert http.get(f"{place}/log", params={"start": 1, "limit": 3}).json()["output"] == "ead"
    assert http.get(f"/v1/sessions/{one}/processes").json()["processes"] == []
    assert len(http.get(f"/v1/sessions/{one}/processes", params={"ended": True}).json()["processes"]) == 1


def test_search_results_have_pages(http: httpx.Client) -> None:
    one, other = begin(http, title="Needles"), begin(http)
    for n in range(3):
        said(http, one, f"haystack needle{n}")
    said(http, other, "haystack elsewhere")

    first = http.get("/v1/search", params={"q": "haystack", "session": one, "limit": 4}).json()
    second = http.get(
        "/v1/search", params={"q": "haystack", "session": one, "limit": 4, "before": first["next"]}
    ).json()

    assert {hit["title"] for hit in first["hits"]} == {"Needles"}
    places = [hit["seq"] for hit in first["hits"] + second["hits"]]
    assert len(places) == len(set(places)) == 6 and places == sorted(places, reverse=True)
    assert len(http.get("/v1/search", params={"q": "haystack"}).json()["hits"]) == 8
    assert http.get("/v1/search", params={"q": " "}).json()["error"]["code"] == "invalid"


@pytest.mark.parametrize("order", ["relevance", "recent"])
def test_each_order_of_search_results_has_pages(http: httpx.Client, order: str) -> None:
    one = begin(http)
    for n in range(3):
        said(http, one, f"{order} walrus{n}")
    asked = {"q": "walrus", "session": one, "order": order, "limit": 4}

    first = http.get("/v1/search", params=asked).json()
    second = http.get("/v1/search", params={**asked, "before": first["next"]}).json()

    assert len({hit["seq"] for hit in first["hits"] + second["hits"]}) == 6 and second["next"] is None
    assert (first["order"], first["pending"], second["similar"]) == (order, 0, False)


def test_a_search_folds_accents_tolerates_typos_counts_and_filters(http: httpx.Client) -> None:
    one = begin(http)
    said(http, one, "Der Schlüssel liegt in Łódź")

    for query, similar in (("schlussel lodz", False), ("SCHLUSEL", True)):
        found = http.get("/v1/search", params={"q": query, "session": one}).json()
        assert {hit["session_id"] for hit in found["hits"]} == {one}
        assert (found["similar"], found["complete"]) == (similar, True)
        assert [(row["session_id"], row["count"]) for row in found["sessions"]] == [(one, 2)]
    [hit] = http.get("/v1/search", params={"q": "lodz", "session": one, "role": "user"}).json()["hits"]
    assert hit["kind"] == "user_said"
    assert http.get("/v1/search", params={"q": "lodz", "session": one, "tool": "terminal"}).json()["hits"] == []
    assert http.get("/v1/search", params={"q": "lodz", "role": "robot"}).json()["error"]["param"] == "role"


def test_workers_sweeps_and_activity_are_shown(http: httpx.Client) -> None:
    one = begin(http, title="Shown")

    [worker] = http.get("/v1/workers").json()["workers"]
    activity = http.get("/v1/activity").json()
    other = http.get("/v1/space/activity").json()
    sweep = http.post("/v1/janitor/sweep").json()

    assert (worker["kind"], worker["state"]) == ("serve", "alive")
    assert activity["sessions"][0]["id"] == one and activity["sessions"][0]["doing"] == "waiting"
    assert activity["counts"]["leaked"] == 0 and activity["counts"]["total"] >= 1
    assert other.keys() == activity.keys()
    assert [found["id"] for found in sweep["workers"]] == [worker["id"]]


def test_clients_of_hermes_get_its_format(http: httpx.Client) -> None:
    one = begin(http, title="Known")
    said(http, one, "hello")
    fork = http.post(f"/v1/sessions/{one}/fork").json()["id"]
    http.post(f"/v1/sessions/{one}/end")

    listed = http.get("/api/sessions", params={"limit": 1, "offset": 1, "source": "api_server"}).json()
    found = http.get(f"/api/sessions/{one}").json()

    assert len(listed["data"]) == 1 and listed["data"] == listed["sessions"] and listed["object"] == "list"
    assert found["session"]["id"] == found["id"] == found["_lineage_root_id"] == one
    assert (found["message_count"], found["end_reason"], found["parent_session_id"]) == (2, "user", None)
    assert found["started_at"] < found["ended_at"]
    assert http.get(f"/api/sessions/{fork}").json()["parent_session_id"] == one
    assert http.get("/api/sessions/hf-00000000000000000000").status_code == 404


def test_metrics_have_the_prometheus_format(http: httpx.Client) -> None:
    http.get("/nowhere")

    response = http.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'holdfast_sessions{place="leaked"} 0' in lines
    assert 'holdfast_workers{state="alive"} 1' in lines
    [missed] = [line for line in lines if line.startswith('holdfast_http_requests_total{method="GET",status="404"}')]
    assert float(missed.split()[-1]) >= 1
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)


WRONG: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/v1/sessions", b"{", 400, "invalid_json"),
    ("POST", "/v1/sessions", b"[]", 400, "invalid_json"),
    ("POST", "/v1/sessions", {"key": "a\nb"}, 400, "invalid_header"),
    ("POST", "/v1/sessions", {"title": 7}, 400, "invalid_type"),
    ("POST", "/v1/sessions", {"model": "gpt-9"}, 404, "model_not_found"),
    ("POST", "/v1/sessions", {"nonsense": 1}, 400, "unsupported_parameter"),
    ("GET", "/v1/sessions?limit=0", None, 400, "invalid_value"),
    ("GET", "/v1/sessions?limit=1001", None, 400, "invalid_value"),
    ("GET", "/v1/sessions?limit=x", None, 400, "invalid_type"),
    ("GET", "/v1/sessions?state=asleep", None, 400, "invalid_type"),
    ("GET", "/v1/sessions?channel=%00", None, 400, "invalid_value"),
    ("GET", "/v1/sessions?nonsense=1", None, 400, "unsupported_parameter"),
    ("GET", "/v1/sessions/hf-00000000000000000000", None, 404, "session_not_found"),
    ("GET", "/v1/sessions/hf-0000000000", None, 404, "session_not_found"),
    ("GET", "/v1/sessions/%00", None, 404, "session_not_found"),
    ("GET", "/v1/sessions/x/turns/%00", None, 404, "session_not_found"),
    ("POST", "/v1/sessions/x/turns", {}, 400, "invalid_type"),
    ("POST", "/v1/sessions/x/turns", {"input": " "}, 400, "invalid_request"),
    ("POST", "/v1/sessions/x/turns", {"input": []}, 400, "invalid_request"),
    ("POST", "/v1/sessions/x/turns", {"input": [{"type": "input_audio"}]}, 400, "unsupported_content"),
    ("POST", "/v1/sessions/x/turns", {"input": "hello"}, 404, "session_not_found"),
    ("POST", "/v1/sessions/x/fork", {"at": 0}, 400, "invalid_value"),
    ("POST", "/v1/sessions/x/fork", {"at": 10**30}, 400, "invalid_value"),
    ("POST", "/v1/sessions/x/compact", {"undo": True, "about": "x"}, 400, "invalid_value"),
    ("GET", "/v1/sessions/x/events?after=-1", None, 400, "invalid_value"),
    ("GET", "/v1/search", None, 400, "invalid_type"),
    ("GET", "/v1/processes/proc-00000000000000000000", None, 404, "not_found"),
    ("DELETE", "/v1/processes/%00", None, 404, "not_found"),
    ("GET", "/v1/search?q=a&q=b", None, 400, "invalid_value"),
    ("GET", "/v1/sessions/", None, 404, "not_found"),
    ("POST", "/v1/sessions/x/interrupt", b"garbage", 400, "invalid_json"),
    ("POST", "/v1/janitor/sweep", {"force": True}, 400, "unsupported_parameter"),
    ("DELETE", "/v1/sessions/x", {"force": True}, 400, "unsupported_parameter"),
    ("DELETE", "/v1/sessions", None, 405, "method_not_allowed"),
]


@pytest.mark.parametrize(("method", "path", "sent", "status", "code"), WRONG, ids=lambda value: str(value)[:40])
def test_an_invalid_request_is_refused_and_the_parameter_is_named(
    http: httpx.Client, method: str, path: str, sent: Any, status: int, code: str
) -> None:
    content = sent if isinstance(sent, bytes) else json.dumps(sent).encode() if sent is not None else None

    response = http.request(method, path, content=content)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text
