"""Input items of a response: what the model gets of calls, results and references, also with ids that are used twice."""

import json
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.api.serving import Server

TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def call(call_id: str, **more: str) -> dict[str, str]:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}", **more}


def result(call_id: str, output: str, **more: str) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def send(server: Server, **body: Any) -> dict[str, Any]:
    with server.http() as http:
        response = http.post("/v1/responses", json={"model": "holdfast", "tools": [TOOL], **body})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def received(record: Path) -> list[dict[str, Any]]:
    """The messages of the newest request to the model, without the system's."""
    found: list[dict[str, Any]] = json.loads(record.read_text().splitlines()[-1])["messages"]
    return [one for one in found if one["role"] != "system"]


def exchange(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Each call of the model with its result, found by the id that both have."""
    results = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    made = [made for one in messages for made in one.get("tool_calls", ())]
    assert len(results) == len(made), "each call has one result"
    return [(made["function"]["name"], results[made["id"]]) for made in made]


def test_a_call_and_its_result_may_have_the_same_item_id(upstream: Server, record: Path) -> None:
    items = [user(uuid.uuid4().hex), call("c1", id="same"), result("c1", "Rain.", id="same")]

    send(upstream, input=items)

    assert exchange(received(record)) == [("weather", "Rain.")]


def test_an_id_of_a_call_may_be_used_again_in_a_later_turn(upstream: Server, record: Path) -> None:
    start = [user(uuid.uuid4().hex), call("c1"), result("c1", "Rain.")]
    first = send(upstream, input=start)
    items = [*start, *first["output"], user("And now?"), call("c1"), result("c1", "Sun.")]

    second = send(upstream, input=items)
    third = send(upstream, input=[*items, *second["output"], user("use tool weather {}")])
    made = third["output"][0]["call_id"]
    send(upstream, input=[result(made, "Snow.")], previous_response_id=third["id"])

    assert exchange(received(record)) == [("weather", "Rain."), ("weather", "Sun."), ("weather", "Snow.")]
    assert len({one["holdfast"]["session_id"] for one in (first, second, third)}) == 1


def test_calls_and_results_can_be_referred_to(upstream: Server, record: Path) -> None:
    said = user(f"use tool weather {{}}\n{uuid.uuid4().hex}")
    first = send(upstream, input=[said])
    made = first["output"][0]
    second = send(upstream, input=[said, made, result(made["call_id"], "Rain.")])
    with upstream.http() as http:
        listed = http.get(f"/v1/responses/{second['id']}/input_items").json()["data"]
    [given] = [item for item in listed if item["type"] == "function_call_output"]

    references = [{"type": "item_reference", "id": id_} for id_ in (made["id"], given["id"], second["output"][0]["id"])]
    third = send(upstream, input=[said, *references, user("Sure?")])

    assert exchange(received(record)) == [("weather", "Rain.")]
    assert received(record)[-1]["content"] == "Sure?"
    assert third["holdfast"]["session_id"] == first["holdfast"]["session_id"]


def test_a_result_without_a_call_is_refused(http: httpx.Client) -> None:
    response = http.post("/v1/responses", json={"model": "holdfast", "input": [user("Hello"), result("c9", "?")]})

    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


def test_a_compacted_conversation_reaches_the_model(upstream: Server, record: Path) -> None:
    conversation = [user("The code word is slate."), {"role": "assistant", "content": "Noted."}]
    with upstream.http() as http:
        made = http.post("/v1/responses/compact", json={"model": "holdfast", "input": conversation}).json()
        first = send(upstream, input=[*made["output"], user("What is the code word?")])
        shown = received(record)
        again = [*made["output"], user("What is the code word?"), *first["output"], user("Again?")]
        second = send(upstream, input=again)
        kept = http.post("/v1/responses/compact", json={"model": "holdfast", "previous_response_id": first["id"]})
        foreign = [{"type": "compaction", "encrypted_content": "gAAAA"}]
        refused = http.post("/v1/responses", json={"model": "holdfast", "input": [*foreign, user("Hello")]}).json()

    assert [item["type"] for item in made["output"]] == ["compaction"]
    assert "slate" in str(shown[0]["content"]) and "What is the code word?" in str(shown[-1]["content"])
    assert second["holdfast"]["session_id"] == first["holdfast"]["session_id"]
    assert kept.status_code == 200 and kept.json()["usage"]["total_tokens"] >= 0
    assert (refused["error"]["code"], refused["error"]["param"]) == ("invalid_value", "input[0].encrypted_content")
