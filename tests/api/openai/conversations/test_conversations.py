"""Conversations: the official client works unchanged, the model gets the items, and wrong input is named."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.api.serving import Server
from tests.crash.programs import wait_until
from tests.engine.turn.test_session_cache import damage

CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "Rain."}
UNKNOWN = "conv_" + "0" * 20


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


def said(text: str) -> Any:
    return {"type": "message", "role": "assistant", "content": text}


def texts(items: Any) -> list[str]:
    return [part.text for item in items if item.type == "message" for part in item.content]


def messages(record: Path) -> list[Any]:
    """The messages of the newest request to the model, without the system's."""
    found = json.loads(record.read_text().splitlines()[-1])["messages"]
    return [(one["role"], one.get("content")) for one in found if one["role"] != "system"]


def test_a_conversation_can_be_created_read_changed_and_deleted(client: OpenAI, http: httpx.Client) -> None:
    made = client.conversations.create(metadata={"topic": "demo"})

    found = client.conversations.retrieve(made.id)
    assert (found.id, found.object, found.metadata) == (made.id, "conversation", {"topic": "demo"})
    assert client.conversations.update(made.id, metadata={"topic": "other"}).metadata == {"topic": "other"}
    assert client.conversations.retrieve(made.id).metadata == {"topic": "other"}
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError) as gone:
        client.conversations.retrieve(made.id)
    assert gone.value.code == "conversation_not_found"
    session = f"hf-{made.id.removeprefix('conv_')}"
    assert http.get(f"/v1/sessions/{session}").json()["trashed_at"] is not None


def test_the_model_sees_the_items_and_not_the_deleted_ones(upstream: Server, record: Path) -> None:
    with upstream.openai() as client:
        made = client.conversations.create(items=[user("I am Ada."), said("Hello Ada."), user("I like tea.")])
        added = client.conversations.items.create(made.id, items=[user("My secret is 42."), user("I live in Bonn.")])
        client.conversations.items.delete(added.data[0].id, conversation_id=made.id)
        done = client.responses.create(model="holdfast", input="Who am I?", conversation=made.id)
        first = messages(record)
        reply = client.conversations.items.list(made.id, limit=1).data[0]
        client.conversations.items.delete(reply.id, conversation_id=made.id)
        client.responses.create(model="holdfast", input="And now?", conversation=made.id)

    assert [role for role, _ in first] == ["user", "assistant", "user"]
    assert first[1] == ("assistant", "Hello Ada.")
    assert all(text in str(first[2]) for text in ("I like tea.", "I live in Bonn.", "Who am I?"))
    assert "42" not in str(first)
    assert reply.id == done.output[0].id, "an item of a response has the id that the response gave"
    assert [role for role, _ in messages(record)] == ["user", "assistant", "user"]
    assert "You said" not in str(messages(record))


def test_responses_and_items_are_listed_in_their_order(client: OpenAI) -> None:
    made = client.conversations.create(items=[user("one"), said("two")])
    first = client.responses.create(model="holdfast", input="three", conversation=made.id)
    client.conversations.items.create(made.id, items=[user("four"), said("five")])
    client.responses.create(model="holdfast", input="six", previous_response_id=None, conversation=made.id)

    listed = list(client.conversations.items.list(made.id, order="asc", limit=3))
    expected = ["one", "two", "three", "You said: three", "four", "five", "six", "You said: six"]
    assert texts(listed) == expected
    assert texts(client.conversations.items.list(made.id)) == expected[::-1]
    assert [item.id for item in first.output] == [listed[3].id]
    assert first.conversation is not None and first.conversation.id == made.id
    for item in listed:
        assert client.conversations.items.retrieve(item.id, conversation_id=made.id) == item


def test_a_call_and_its_result_are_items_that_share_the_call_id(upstream: Server, record: Path) -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    with upstream.openai() as client:
        made = client.conversations.create()
        done: Any = client.responses.create(
            model="holdfast", input="use tool weather {}", conversation=made.id, tools=[tool]
        )
        result: Any = {"type": "function_call_output", "call_id": done.output[0].call_id, "output": "Rain."}
        client.conversations.items.create(made.id, items=[result])
        client.responses.create(model="holdfast", input="Well?", conversation=made.id)
        kinds = [item.type for item in client.conversations.items.list(made.id, order="asc")]
        with pytest.raises(openai.BadRequestError) as refused:
            client.conversations.items.delete(done.output[0].id, conversation_id=made.id)

    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    assert [role for role, _ in messages(record)] == ["user", "assistant", "tool", "user"]
    assert messages(record)[2] == ("tool", "Rain.")
    assert refused.value.code == "unsupported_content"


def test_a_deleted_result_leaves_a_notice(upstream: Server, record: Path) -> None:
    with upstream.openai() as client:
        made = client.conversations.create(items=[user("weather?"), CALL, RESULT, said("It rains.")])  # type: ignore[list-item]
        [result] = [one for one in client.conversations.items.list(made.id) if one.type == "function_call_output"]
        client.conversations.items.delete(result.id, conversation_id=made.id)
        client.responses.create(model="holdfast", input="Sure?", conversation=made.id)

    assert "Rain." not in record.read_text()
    assert ("tool", "The content of this result was removed from the conversation.") in messages(record)


def test_a_conversation_of_chat_completions_has_items_too(client: OpenAI) -> None:
    name = {"X-Session-Key": uuid.uuid4().hex}
    chat = client.chat.completions.with_raw_response.create(
        model="holdfast", messages=[{"role": "user", "content": "one"}], extra_headers=name
    )
    known = chat.headers["x-session-id"]

    assert texts(client.conversations.items.list(known, order="asc")) == ["one", "You said: one"]
    assert client.conversations.retrieve(known).id == f"conv_{known.removeprefix('hf-')}"


def test_an_imported_history_has_items_that_can_be_retrieved(client: OpenAI) -> None:
    history: list[Any] = [user("one"), said("two"), user(uuid.uuid4().hex)]
    done: Any = client.responses.create(model="holdfast", input=history)
    known = done.holdfast["session_id"]

    listed = list(client.conversations.items.list(known, order="asc"))
    assert texts(listed)[:2] == ["one", "two"]
    assert len({item.id for item in listed}) == 4
    assert client.conversations.items.retrieve(listed[1].id, conversation_id=known) == listed[1]


def test_items_cannot_be_added_during_a_turn(client: OpenAI, server: Server) -> None:
    made = client.conversations.create()
    running = client.responses.create(model=server.model("slow"), input="Hello", conversation=made.id, background=True)

    with pytest.raises(openai.ConflictError) as refused:
        client.with_options(max_retries=0).conversations.items.create(made.id, items=[user("now")])

    assert refused.value.code == "session_busy"
    client.responses.cancel(running.id)
    wait_until(lambda: client.responses.retrieve(running.id).status == "cancelled", "the end of the turn")


@pytest.mark.parametrize("headers", [{"idempotency-key": "k1"}, {"x-stainless-retry-count": "1"}])
def test_a_repeated_request_adds_nothing(own: Server, headers: dict[str, str]) -> None:
    first = {name: value for name, value in headers.items() if name == "idempotency-key"}
    body = {"items": [user("one"), said("two"), user("three")]}
    with own.http() as http:
        made = http.post("/v1/conversations", json=body, headers=first).json()
        empty = http.post("/v1/conversations", headers={**first, "idempotency-key": "k2"}).json()
        path = f"/v1/conversations/{made['id']}/items"
        added = http.post(path, json=body, headers=first).json()
        http.post(path, json={"items": [user("later")]})
    own.kill()  # so that nobody knows whether the client has the answers
    own.restart()
    with own.http() as http:
        assert http.post("/v1/conversations", json=body, headers=headers).json() == made
        assert http.post("/v1/conversations", headers={**headers, "idempotency-key": "k2"}).json() == empty
        assert http.post(path, json=body, headers=headers).json() == added
        listed = http.get(path, params={"order": "asc"}).json()["data"]

    assert [item["content"][0]["text"] for item in listed] == ["one", "two", "three"] * 2 + ["later"]
    assert added["data"] == listed[3:6]


def test_an_equal_request_whose_answer_arrived_adds_its_items_again(client: OpenAI, http: httpx.Client) -> None:
    made = client.conversations.create().id
    for count in "001":
        http.post(
            f"/v1/conversations/{made}/items",
            json={"items": [user("again")]},
            headers={"x-stainless-retry-count": count},
        )

    assert texts(client.conversations.items.list(made)) == ["again"] * 3


def test_a_key_of_another_request_is_refused(client: OpenAI, http: httpx.Client) -> None:
    path, key = f"/v1/conversations/{client.conversations.create().id}/items", {"idempotency-key": uuid.uuid4().hex}
    http.post(path, json={"items": [user("one")]}, headers=key)
    refused = http.post(path, json={"items": [user("two")]}, headers=key)

    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "key_reused")


def test_the_answer_has_only_the_items_of_its_request(client: OpenAI) -> None:
    made = client.conversations.create().id

    def add(number: int) -> tuple[str, list[str]]:
        return str(number), texts(client.conversations.items.create(made, items=[user(str(number))]).data)

    with ThreadPoolExecutor(8) as pool:
        assert all(found == [asked] for asked, found in pool.map(add, range(40)))


def test_nothing_is_added_to_a_damaged_log(own: Server) -> None:
    with own.http() as http:
        made = http.post("/v1/conversations", json={"items": [user("one"), user("two")]})
        session_id = made.headers["x-session-id"]
        before = http.get(f"/v1/sessions/{session_id}").json()["seq"]
    own.stop()
    damage(own.home, session_id, 3)
    own.restart()
    with own.http() as http:
        path = f"/v1/conversations/{made.json()['id']}/items"
        refused = http.post(path, json={"items": [user("three")]})
        after = http.get(f"/v1/sessions/{session_id}").json()["seq"]

    assert (refused.status_code, refused.json()["error"]["code"]) == (500, "corrupt")
    assert after == before


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "param"),
    [
        ("GET", UNKNOWN, None, 404, "conversation_not_found", "conversation_id"),
        ("GET", "conv_%00", None, 404, "conversation_not_found", "conversation_id"),
        ("POST", UNKNOWN, {"metadata": {}}, 404, "conversation_not_found", "conversation_id"),
        ("DELETE", UNKNOWN, None, 404, "conversation_not_found", "conversation_id"),
        ("GET", f"{UNKNOWN}/items", None, 404, "conversation_not_found", "conversation_id"),
        ("GET", "{made}/items?limit=0", None, 400, "invalid_value", "limit"),
        ("GET", "{made}/items?order=up", None, 400, "invalid_value", "order"),
        ("GET", "{made}/items?after=msg_1", None, 400, "invalid_value", "after"),
        ("GET", "{made}/items?what=1", None, 400, "unsupported_parameter", "what"),
        ("GET", "{made}/items?include=file_search_call.results", None, 400, "unsupported_parameter", "include"),
        ("GET", "{made}/items/msg_1", None, 404, "item_not_found", "item_id"),
        ("DELETE", "{made}/items/msg_1", None, 404, "item_not_found", "item_id"),
        ("POST", "{made}", {}, 400, "invalid_type", "metadata"),
        ("POST", "{made}", {"metadata": {"a": 1}}, 400, "invalid_type", "metadata[...]"),
        ("POST", "{made}", {"metadata": {str(n): "" for n in range(17)}}, 400, "invalid_value", "metadata"),
        ("POST", "{made}", {"metadata": {"a" * 65: ""}}, 400, "invalid_value", "metadata"),
        ("POST", "{made}", {"metadata": {"a": "b" * 513}}, 400, "invalid_value", "metadata"),
        ("POST", "{made}", {"metadata": {"a": "\0"}}, 400, "invalid_value", "metadata"),
        ("POST", "{made}/items", {}, 400, "invalid_type", "items"),
        ("POST", "{made}/items", {"items": []}, 400, "invalid_request", "items"),
        ("POST", "{made}/items", {"items": [user("a")] * 21}, 400, "invalid_value", "items"),
        ("POST", "{made}/items", {"items": [RESULT]}, 400, "invalid_request", "items"),
        ("POST", "{made}/items", {"items": [{"type": "what"}]}, 400, "unsupported_content", "items[0].type"),
        ("POST", "{made}/items", {"items": [{"role": "system", "content": "a"}]}, 400, "unsupported_content", "items"),
        ("POST", "{made}/items", {"items": [user("a")], "what": 1}, 400, "unsupported_parameter", "what"),
    ],
)
def test_wrong_input_is_named(
    http: httpx.Client, client: OpenAI, method: str, path: str, body: Any, status: int, code: str, param: str
) -> None:
    made = client.conversations.create(items=[user("kept")]).id

    response = http.request(method, f"/v1/conversations/{path.format(made=made)}", json=body)

    found = response.json()["error"]
    assert (response.status_code, found["code"], found["param"]) == (status, code, param)
    assert texts(client.conversations.items.list(made)) == ["kept"]


def test_a_response_in_an_unknown_conversation_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.responses.create(model="holdfast", input="Hello", conversation=UNKNOWN)

    assert refused.value.code == "session_not_found"
