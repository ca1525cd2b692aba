"""Promise 19 over the Responses API: the official client works unchanged, and a response is a turn."""

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.api.sdk_types import check_event
from tests.api.serving import SLOWLY, Server
from tests.crash.programs import wait_until

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    "strict": False,
}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def new_name() -> dict[str, str]:
    return {"X-Session-Key": uuid.uuid4().hex}


def session_of(response: Any) -> str:
    return str(response.holdfast["session_id"])


def test_a_response_has_all_fields_that_the_client_reads(client: OpenAI) -> None:
    done = client.responses.create(
        model="holdfast", input="Hello", instructions="Be brief.", metadata={"a": "b"}, user="me", truncation="auto"
    )

    assert (done.object, done.status, done.output_text) == ("response", "completed", "You said: Hello")
    assert (done.instructions, done.metadata, done.user, done.truncation) == ("Be brief.", {"a": "b"}, "me", "auto")
    assert done.usage is not None and done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert done.completed_at is not None and done.completed_at >= done.created_at
    assert done.holdfast.keys() == {"session_id", "turn_id", "epoch", "seq", "compacted"}  # type: ignore[attr-defined]


def test_a_stream_has_the_events_in_their_order(client: OpenAI) -> None:
    events = list(client.responses.create(model="holdfast", input="Hello", stream=True))

    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    numbers = [check_event(event.to_dict())["sequence_number"] for event in events]
    assert numbers == list(range(len(events))), "no number is missing"
    assert events[-1].response.output_text == "You said: Hello"  # type: ignore[union-attr]


def test_the_stream_helper_of_the_client_assembles_the_response(client: OpenAI) -> None:
    with client.responses.stream(model="scripted:tools", input="use tool weather {}", tools=[WEATHER]) as stream:
        types = [event.type for event in stream if check_event(event.to_dict())]
        done = stream.get_final_response()

    assert "response.function_call_arguments.done" in types
    assert [item.type for item in done.output] == ["function_call"]


def test_a_previous_response_id_continues_its_session(client: OpenAI) -> None:
    first = client.responses.create(model="holdfast", input="one")
    second = client.responses.create(model="holdfast", input="two", previous_response_id=first.id)

    assert session_of(second) == session_of(first)
    assert second.previous_response_id == first.id


def test_a_second_continuation_of_a_response_is_a_fork(client: OpenAI) -> None:
    first = client.responses.create(model="holdfast", input="one")
    client.responses.create(model="holdfast", input="two", previous_response_id=first.id)

    other = client.responses.with_raw_response.create(model="holdfast", input="three", previous_response_id=first.id)

    assert other.headers["x-session-forked-from"] == session_of(first)
    again = client.responses.create(model="holdfast", input="four", previous_response_id=other.parse().id)
    assert session_of(again) == session_of(other.parse()) != session_of(first)


def test_a_full_history_is_matched_as_in_chat_completions(client: OpenAI) -> None:
    start: list[Any] = [{"role": "user", "content": uuid.uuid4().hex}]
    first = client.responses.create(model="holdfast", input=start)
    history = [*start, *(item.to_dict() for item in first.output), {"role": "user", "content": "more"}]

    second = client.responses.create(model="holdfast", input=history)  # type: ignore[arg-type]

    assert session_of(second) == session_of(first)


def test_chat_and_responses_meet_in_one_session(client: OpenAI) -> None:
    headers = new_name()
    first = client.responses.create(model="holdfast", input="one", extra_headers=headers)
    chat = client.chat.completions.with_raw_response.create(
        model="holdfast", messages=[{"role": "user", "content": "two"}], extra_headers=headers
    )
    last = client.responses.create(model="holdfast", input="three", extra_headers=headers)

    assert {session_of(first), session_of(last)} == {chat.headers["x-session-id"]}


def test_item_references_resolve_to_their_session(client: OpenAI) -> None:
    first = client.responses.create(model="holdfast", input="hello there")
    second = client.responses.create(model="holdfast", input="hello there")

    for known in (first, second):
        items: list[Any] = [
            {"role": "user", "content": "hello there"},
            {"type": "item_reference", "id": known.output[0].id},
            {"role": "user", "content": "more"},
        ]
        assert session_of(client.responses.create(model="holdfast", input=items)) == session_of(known)


def test_a_conversation_is_a_session_by_name_or_id(client: OpenAI) -> None:
    name = uuid.uuid4().hex
    first = client.responses.create(model="holdfast", input="one", conversation=name)
    second = client.responses.create(model="holdfast", input="two", conversation={"id": name})
    third = client.responses.create(model="holdfast", input="three", conversation=session_of(first))

    assert session_of(first) == session_of(second) == session_of(third)
    assert second.conversation is not None and second.conversation.id == name


@pytest.mark.parametrize("by_id", [True, False])
def test_a_call_is_returned_to_the_client_and_its_result_continues_the_turn(client: OpenAI, by_id: bool) -> None:
    said = f'use tool weather {{"place": "Bonn"}}\n{uuid.uuid4().hex}'
    first = client.responses.create(model="scripted:tools", input=said, tools=[WEATHER])
    call: Any = first.output[0]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"place": "Bonn"})

    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    history: list[Any] = [{"role": "user", "content": said}, call.to_dict(), result]
    more: Any = {"input": [result], "previous_response_id": first.id} if by_id else {"input": history}
    second = client.responses.create(model="scripted:tools", tools=[WEATHER], **more)

    assert second.output_text == "done: weather: Rain."
    assert session_of(second) == session_of(first)


def test_a_tool_in_a_namespace_is_called_by_both_names(client: OpenAI) -> None:
    space: Any = {"type": "namespace", "name": "sky", "description": "x", "tools": [WEATHER]}
    first = client.responses.create(model="scripted:tools", input="use tool sky__weather {}", tools=[space])
    call: Any = first.output[0]
    assert (call.namespace, call.name) == ("sky", "weather")

    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Snow."}
    second = client.responses.create(
        model="scripted:tools", input=[result], previous_response_id=first.id, tools=[space]
    )
    assert "Snow." in second.output_text


def test_the_servers_own_tools_run_on_the_server(client: OpenAI, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("the marker is 4711")

    done = client.responses.create(
        model="scripted:tools", input=f'use tool read_file {{"path": "{tmp_path}/note.txt"}}'
    )

    assert "4711" in done.output_text
    assert [item.type for item in done.output] == ["message"]


def test_images_and_files_are_accepted_and_listed_as_input_items(client: OpenAI) -> None:
    content: Any = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DOT}", "detail": "low"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="},
    ]
    done = client.responses.create(model="holdfast", input=[{"role": "user", "content": content}])

    assert done.output_text.startswith("You said: Look")
    given: Any = client.responses.input_items.list(done.id).data
    assert [part.to_dict() for part in given[0].content] == content


def test_instructions_apply_to_their_turn_only(client: OpenAI, server: Server) -> None:
    first = client.responses.create(model="holdfast", input="one", instructions="three words here")
    second = client.responses.create(model="holdfast", input="two", previous_response_id=first.id)

    assert first.usage is not None and first.usage.input_tokens == len(["three", "words", "here", "one"])
    assert second.instructions is None
    assert session_of(second) == session_of(first), "they do not make it a side request"


def test_a_response_can_be_retrieved_also_after_a_restart(own: Server) -> None:
    with own.openai() as client:
        done = client.responses.create(model="holdfast", input="Hello", metadata={"k": "v"})
        own.kill()
        own.restart()
    with own.openai() as client:
        again = client.responses.retrieve(done.id)
        streamed = list(client.responses.retrieve(done.id, stream=True))

    kept = done.to_dict()
    kept.pop("holdfast")
    assert again.to_dict() == kept
    assert streamed[-1].response.output_text == "You said: Hello"  # type: ignore[union-attr]


def test_a_deleted_response_is_gone_and_its_session_is_not(client: OpenAI, http: httpx.Client) -> None:
    name = uuid.uuid4().hex
    done = client.responses.create(model="holdfast", input="Hello", conversation=name)

    client.responses.delete(done.id)

    for again in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError) as caught:
            again(done.id)
        assert caught.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="holdfast", input="x", previous_response_id=done.id)
    later = client.responses.create(model="holdfast", input="still there?", conversation=name)
    assert session_of(later) == session_of(done)


def test_a_response_with_store_false_cannot_be_retrieved(client: OpenAI) -> None:
    done = client.responses.create(model="holdfast", input="Hello", store=False)

    assert done.store is False  # type: ignore[attr-defined]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(done.id)


def test_a_background_response_returns_at_once_and_continues(client: OpenAI, server: Server) -> None:
    begun = client.responses.create(model=server.model("slow"), input="Hello", background=True)
    waiting = client.responses.create(
        model="scripted:echo", input="then", previous_response_id=begun.id, background=True
    )
    assert (begun.status, waiting.status) == ("in_progress", "queued")
    assert client.responses.retrieve(waiting.id).status == "queued"

    def status() -> str | None:
        return client.responses.retrieve(waiting.id).status

    wait_until(lambda: status() == "completed", "the end of the second")
    assert client.responses.retrieve(begun.id).output_text == SLOWLY
    assert client.responses.retrieve(waiting.id).output_text == "You said: then"


def test_running_and_queued_responses_can_be_cancelled(client: OpenAI, server: Server) -> None:
    begun = client.responses.create(model=server.model("slow"), input="Hello", background=True)
    waiting = client.responses.create(model="holdfast", input="then", previous_response_id=begun.id, background=True)

    dropped, stopped = client.responses.cancel(waiting.id), client.responses.cancel(begun.id)

    assert (dropped.status, stopped.status) == ("cancelled", "cancelled")
    assert client.responses.retrieve(waiting.id).status == client.responses.cancel(waiting.id).status == "cancelled"
    assert [event.type for event in client.responses.retrieve(waiting.id, stream=True)][-1] == "response.failed"
    assert client.responses.input_items.list(waiting.id).data[0].to_dict()["content"] == [
        {"type": "input_text", "text": "then"}
    ]


def test_a_client_that_waits_for_removed_input_is_notified(client: OpenAI, server: Server) -> None:
    begun = client.responses.create(model=server.model("slow"), input="Hello", background=True)
    stream = client.responses.create(model="holdfast", input="then", previous_response_id=begun.id, stream=True)
    created: Any = next(iter(stream))

    client.responses.cancel(created.response.id)

    assert [event.type for event in stream][-1] == "response.failed"
    client.responses.cancel(begun.id)


def test_a_running_response_can_be_streamed_again(client: OpenAI, server: Server) -> None:
    begun = client.responses.create(model=server.model("slow"), input="Hello", background=True)

    joined = list(client.responses.retrieve(begun.id, stream=True))

    assert "".join(event.delta for event in joined if event.type == "response.output_text.delta") == SLOWLY
    assert len([event for event in joined if event.type == "response.output_text.delta"]) > 1, "as it came"


def test_a_stream_can_resume_after_any_event(client: OpenAI, server: Server) -> None:
    events = list(client.responses.create(model=server.model("slow"), input="Hello", stream=True))
    response: Any = events[-1].response  # type: ignore[union-attr]

    for last in (events[3], events[5], events[-3]):
        known = events[: last.sequence_number + 1]
        rest = list(client.responses.retrieve(response.id, stream=True, starting_after=last.sequence_number))
        said = [event.delta for event in [*known, *rest] if event.type == "response.output_text.delta"]
        assert "".join(said) == SLOWLY
        assert [event.sequence_number for event in [*known, *rest]] == list(range(len(events)))


def test_a_request_with_an_idempotency_key_runs_once_streamed_or_not(client: OpenAI) -> None:
    headers = {**new_name(), "Idempotency-Key": uuid.uuid4().hex}
    first = client.responses.create(model="holdfast", input="Hello", extra_headers=headers)
    again = client.responses.create(model="holdfast", input="Hello", extra_headers=headers)
    streamed = list(client.responses.create(model="holdfast", input="Hello", extra_headers=headers, stream=True))

    assert first.id == again.id == streamed[-1].response.id  # type: ignore[union-attr]
    with pytest.raises(openai.UnprocessableEntityError):
        client.responses.create(model="holdfast", input="Another", extra_headers=headers)


def test_a_failed_turn_is_an_error_or_the_last_event(tmp_path: Path) -> None:
    with Server(tmp_path / "home", alone="fails") as server, server.openai() as client:
        stream = list(client.responses.create(model="holdfast", input="do it", stream=True))
        failed: Any = stream[-1]

        assert failed.type == "response.failed"
        assert (failed.response.status, failed.response.error.code) == ("failed", "refused")
        assert client.responses.retrieve(failed.response.id).status == "failed"
        later = client.responses.create(model="holdfast", input="well?", previous_response_id=failed.response.id)
        assert later.output_text == "Then again, why not."


def test_a_failed_turn_without_streaming_is_an_error_that_names_the_session(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "home", alone="fails") as server,
        server.openai() as client,
        pytest.raises(openai.BadRequestError) as caught,
    ):
        client.responses.create(model="holdfast", input="do it")

    assert caught.value.code == "refused"
    assert caught.value.response.headers["x-session-id"].startswith("hf-")


def test_input_items_have_pages(client: OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": str(n)} for n in range(5)]
    done = client.responses.create(model="holdfast", input=said)

    first = client.responses.input_items.list(done.id, limit=2, order="asc")
    assert first.has_more and [item.content[0].text for item in first.data] == ["0", "1"]  # type: ignore[union-attr]
    everything = [item.content[0].text for item in client.responses.input_items.list(done.id, limit=2)]  # type: ignore[union-attr]
    assert everything == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize("busy", ["interrupt", "steer", "reject"])
def test_a_request_during_a_turn_follows_its_busy_mode(client: OpenAI, server: Server, busy: str) -> None:
    name = new_name()
    stream = client.responses.create(model=server.model("slow"), input="one", stream=True, extra_headers=name)
    events = iter(stream)
    while next(events).type != "response.output_text.delta":
        pass
    headers = {**name, "X-Busy": busy}

    if busy == "reject":
        with pytest.raises(openai.ConflictError) as caught:
            client.responses.create(model="scripted:echo", input="two", extra_headers=headers)
        assert caught.value.code == "session_busy"
        return
    second = client.responses.create(model="scripted:echo", input="two", extra_headers=headers)
    last: Any = list(events)[-1]

    again = client.responses.retrieve(second.id)
    assert again.output_text == second.output_text
    if busy == "interrupt":
        assert (last.type, last.response.status) == ("response.failed", "cancelled")
        assert second.output_text == "You said: two"
    else:
        assert last.response.output_text.startswith(SLOWLY), "the input joined the running turn"
        given = [item.content[0].text for item in client.responses.input_items.list(second.id)]  # type: ignore[union-attr]
        assert given == ["two"]


def test_a_request_with_an_idempotency_key_resumes_after_a_kill(own: Server) -> None:
    headers = {**new_name(), "Idempotency-Key": uuid.uuid4().hex}
    asked: Any = {"model": own.model("slow"), "input": "Hello", "extra_headers": headers}
    with own.openai() as client:
        begun = client.responses.create(background=True, **asked)
        own.kill()
        own.restart()
    with own.openai() as client:
        streamed = list(client.responses.create(background=True, stream=True, **asked))

    last: Any = streamed[-1]
    assert (last.response.id, last.response.output_text) == (begun.id, SLOWLY)
