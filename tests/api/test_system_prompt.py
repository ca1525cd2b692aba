"""The newest system prompt and `instructions` of a client reach the model, whatever the session had before.

Every test looks at what the model was sent.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import Server, ask, recording_vendor, text
from tests.postgres.cluster import cluster

Json = dict[str, Any]


def said(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def system(content: str) -> Json:
    return said("system", content)


def user(content: str) -> Json:
    return said("user", content)


def unique(words: str) -> str:
    return f"{words} {uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prompts") / "requests.jsonl"


@pytest.fixture(scope="module")
def vendor(record: Path) -> Iterator[str]:
    with recording_vendor(record) as url:
        yield url


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory, vendor: str) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("prompts") / "home", vendor=vendor) as server:
        yield server


@pytest.fixture
def http(upstream: Server) -> Iterator[httpx.Client]:
    with upstream.http() as client:
        yield client


def received(record: Path) -> Json:
    """The newest request that the model was sent."""
    found: Json = json.loads(record.read_text().splitlines()[-1])
    return found


def prompt(record: Path) -> str:
    """All system text of the newest request."""
    return "\n\n".join(one["content"] for one in received(record)["messages"] if one["role"] == "system")


def dialogue(record: Path) -> list[str]:
    return [one["content"] for one in received(record)["messages"] if one["role"] != "system"]


def respond(http: httpx.Client, input_: object, **more: Any) -> Json:
    response = http.post("/v1/responses", json={"model": "holdfast", "input": input_, **more})
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def output(response: Json) -> str:
    return str(response["output"][-1]["content"][0]["text"])


def kinds(http: httpx.Client, session_id: str, kind: str) -> list[Json]:
    events = http.get(f"/v1/sessions/{session_id}/events", params={"limit": 500}).json()["events"]
    return [event for event in events if event["kind"] == kind]


def test_a_changed_system_message_replaces_the_first(http: httpx.Client, record: Path) -> None:
    hello = unique("hello")
    first = ask(http, system("Speak French."), user(hello))

    second = ask(http, system("Speak Dutch."), user(hello), said("assistant", text(first)), user("go on"))
    assert prompt(record) == "Speak Dutch."
    ask(
        http,
        system("Speak Welsh."),
        user(hello),
        said("assistant", text(first)),
        user("go on"),
        said("assistant", text(second)),
        user("and on"),
    )

    assert prompt(record) == "Speak Welsh."
    assert first.headers["x-session-id"] == second.headers["x-session-id"]


def test_promise_29_a_changed_prompt_is_an_event_with_text_and_hash_and_an_unchanged_one_is_not(
    http: httpx.Client, record: Path
) -> None:
    hello, name = unique("hello"), {"x-session-key": unique("name")}
    first = ask(http, system("Speak French."), user(hello), headers=name)
    history = [user(hello), said("assistant", text(first))]
    second = ask(http, system("Speak Dutch."), *history, user("go on"), headers=name)
    history += [user("go on"), said("assistant", text(second))]
    ask(http, system(" Speak Dutch.\n"), *history, user("and on"), headers=name)

    changes = kinds(http, first.headers["x-session-id"], "system_changed")

    assert [change["body"]["system"] for change in changes] == ["Speak Dutch."]
    assert changes[0]["body"]["sha256"] == hashlib.sha256(b"Speak Dutch.").hexdigest()


def test_a_named_session_keeps_the_latest_prompt_for_requests_without_one(http: httpx.Client, record: Path) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, system("Speak French."), user("one"), headers=name)
    ask(http, system("Speak Dutch."), user("one"), said("assistant", text(first)), user("two"), headers=name)

    ask(http, user("three"), headers=name)
    assert prompt(record) == "Speak Dutch."
    ask(http, system("Speak Dutch."), user("four"), headers=name)

    assert prompt(record) == "Speak Dutch."
    assert "three" in dialogue(record), "the text that is the newest does not make a side request"


def test_a_system_message_within_the_conversation_reaches_the_model(http: httpx.Client, record: Path) -> None:
    hello = unique("hello")
    first = ask(http, system("Speak French."), user(hello))

    ask(http, system("Speak French."), user(hello), said("assistant", text(first)), system("Be brief."), user("go on"))

    assert "Speak French." in prompt(record)
    assert "Be brief." in prompt(record)


@pytest.mark.parametrize("roles", [("system", "developer"), ("developer", "system"), ("developer", "developer")])
def test_several_system_and_developer_messages_all_reach_the_model(
    http: httpx.Client, record: Path, roles: tuple[str, str]
) -> None:
    hello = unique("hello")
    first = ask(http, said(roles[0], "Speak French."), said(roles[1], "Be brief."), user(hello))
    assert prompt(record) == "Speak French.\n\nBe brief."

    ask(
        http,
        said(roles[0], "Speak French."),
        said(roles[1], "Be long."),
        user(hello),
        said("assistant", text(first)),
        user("go on"),
    )

    assert prompt(record) == "Speak French.\n\nBe long."


def test_a_stateless_request_without_a_system_message_is_answered_under_the_built_in_one(
    http: httpx.Client, record: Path
) -> None:
    hello = unique("hello")
    first = ask(http, system("Speak French."), user(hello))

    ask(http, user(hello), said("assistant", text(first)), user("go on"))

    assert "Speak French." not in prompt(record)
    assert prompt(record)


def test_apps_that_share_their_first_messages_are_answered_under_their_own_prompts(
    http: httpx.Client, record: Path
) -> None:
    shots = [user(unique("2 and 2")), said("assistant", "4"), user("3 and 3"), said("assistant", "6")]
    ask(http, system("You are app one."), *shots, user("4 and 4"))

    ask(http, system("You are app two."), *shots, user("5 and 5"))
    assert prompt(record) == "You are app two."
    ask(http, *shots, user("6 and 6"))

    assert "app" not in prompt(record)
    assert dialogue(record)[:4] == [shot["content"] for shot in shots]


def test_a_fork_by_an_edited_history_is_answered_under_the_prompt_of_its_request(
    http: httpx.Client, record: Path
) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, system("One."), user("a"), headers=name)
    history = [user("a"), said("assistant", text(first)), user("b")]
    second = ask(http, system("Two."), *history, headers=name)
    ask(http, system("Two."), *history, said("assistant", text(second)), user("c"), headers=name)

    edited = ask(http, system("Three."), *history[:2], user("d"), headers=name)

    assert "x-session-forked-from" in edited.headers
    assert prompt(record) == "Three."


def test_queued_input_is_answered_under_the_prompt_of_its_request(http: httpx.Client, record: Path) -> None:
    hello = unique("hello")
    first = ask(http, system("One."), user(hello))
    name = {"x-session-id": first.headers["x-session-id"]}
    history = [user(hello), said("assistant", text(first))]
    body = {"model": "holdfast", "input": [system("Two."), *history, user("slow")], "background": True}
    running = http.post("/v1/responses", json=body, headers=name)
    assert running.status_code == 200, running.text

    ask(http, system("Three."), *history, user("slow"), user("after it"), headers=name)

    assert prompt(record) == "Three."


def test_instructions_precede_a_developer_item_of_the_same_request(http: httpx.Client, record: Path) -> None:
    respond(http, [said("developer", "Speak French."), user(unique("hello"))], instructions="Be brief.")

    assert prompt(record) == "Be brief.\n\nSpeak French."


def test_changed_instructions_reach_the_model_and_apply_to_their_turn_only(http: httpx.Client, record: Path) -> None:
    first = respond(http, [said("developer", "Speak French."), user("hello")], instructions="Be brief.")
    second = respond(http, "go on", previous_response_id=first["id"], instructions="Be long.")
    assert prompt(record) == "Be long.\n\nSpeak French."

    respond(http, "and on", previous_response_id=second["id"])

    assert prompt(record) == "Speak French."


def test_a_developer_item_after_a_response_is_added_to_the_earlier_ones(http: httpx.Client, record: Path) -> None:
    first = respond(http, [said("developer", "Speak French."), user("hello")])
    second = respond(http, [said("developer", "Be brief."), user("go on")], previous_response_id=first["id"])
    assert prompt(record) == "Speak French.\n\nBe brief."

    respond(http, [said("developer", "Be brief."), user("and on")], previous_response_id=second["id"])
    assert prompt(record) == "Speak French.\n\nBe brief.", "the same text twice is said once"
    respond(http, [said("developer", "Sing."), user("other")], previous_response_id=first["id"])

    assert prompt(record) == "Speak French.\n\nSing.", "a fork has what its turn had"


def test_a_changed_developer_item_in_a_whole_history_reaches_the_model(http: httpx.Client, record: Path) -> None:
    hello = unique("hello")
    first = respond(http, [said("developer", "Speak French."), user(hello)])

    respond(
        http,
        [said("developer", "Speak Dutch."), user(hello), said("assistant", output(first)), user("go on")],
        instructions="Be brief.",
    )

    assert prompt(record) == "Be brief.\n\nSpeak Dutch."


def test_a_changed_prompt_applies_after_a_compaction_and_after_a_restart(
    upstream: Server, http: httpx.Client, record: Path
) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, system("One."), user("a " * 400), headers=name)
    history = [user("a " * 400), said("assistant", text(first))]
    second = ask(http, system("Two."), *history, user("b " * 400), headers=name)
    session_id = second.headers["x-session-id"]
    compacted = http.post(f"/v1/sessions/{session_id}/compact", json={})
    assert compacted.status_code == 200, compacted.text

    ask(http, user("c"), headers=name)
    assert prompt(record) == "Two."
    upstream.kill()
    upstream.restart()
    ask(http, user("d"), headers=name)
    assert prompt(record) == "Two."
    ask(http, system("Two."), user("e"), headers=name)

    assert prompt(record) == "Two."
    assert len(kinds(http, session_id, "system_changed")) == 1


def test_on_postgresql_a_changed_prompt_reaches_the_model(tmp_path: Path, record: Path, vendor: str) -> None:
    url = cluster().new_database()
    name = {"x-session-key": unique("name")}
    with Server(tmp_path / "away", vendor=vendor, store=url) as server, server.http() as http:
        first = ask(http, system("One."), user("a"), headers=name)
        ask(http, system("Two."), user("a"), said("assistant", text(first)), user("b"), headers=name)
        assert prompt(record) == "Two."
        ask(http, user("c"), headers=name)

    assert prompt(record) == "Two."
