"""Promise 19: the official client works unchanged."""

import json
import uuid
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.api.serving import Server

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def new_name() -> dict[str, str]:
    return {"X-Session-Key": uuid.uuid4().hex}


def test_a_completion_has_all_fields_that_the_client_reads(client: OpenAI) -> None:
    done = client.chat.completions.create(model="holdfast", messages=[{"role": "user", "content": "Hello"}])

    assert done.object == "chat.completion"
    assert done.choices[0].message.content == "You said: Hello"
    assert done.choices[0].finish_reason == "stop"
    assert done.usage is not None and done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    assert done.id.startswith("chatcmpl-") and done.model == "scripted:echo"


def test_a_stream_has_the_same_text_and_ends_with_its_usage(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="holdfast",
        messages=[{"role": "user", "content": "Hello"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)

    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "You said: Hello"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    about: Any = chunks[-1].holdfast  # type: ignore[attr-defined]
    assert about.keys() == {"session_id", "turn_id", "epoch", "seq", "compacted"}
    assert stream.response.headers["x-session-id"] == about["session_id"]
    assert stream.response.headers["x-turn-id"] == about["turn_id"]
    assert "x-session-seq" not in stream.response.headers


def test_a_client_that_did_not_ask_for_usage_gets_no_chunk_without_choices(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="holdfast", messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    chunks = list(stream)

    assert all(chunk.choices for chunk in chunks)
    assert chunks[-1].usage is not None and chunks[-1].holdfast["seq"] == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_a_client_tool_is_returned_and_its_result_continues_the_turn(client: OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": f'use tool weather {{"place": "Bonn"}}\n{uuid.uuid4().hex}'}]
    first = calls_of(client, messages, stream=stream)
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in first] == [
        ("weather", {"place": "Bonn"})
    ]

    messages += [
        {"role": "assistant", "content": None, "tool_calls": first},
        {"role": "tool", "tool_call_id": first[0]["id"], "content": "Rain."},
    ]
    done = client.chat.completions.with_raw_response.create(model="scripted:tools", messages=messages, tools=[WEATHER])

    assert "Rain." in (done.parse().choices[0].message.content or "")
    assert done.headers["x-session-new"] == "0"


def calls_of(client: OpenAI, messages: list[Any], *, stream: bool) -> list[Any]:
    if not stream:
        done = client.chat.completions.create(model="scripted:tools", messages=messages, tools=[WEATHER])
        assert done.choices[0].finish_reason == "tool_calls"
        return [call.to_dict() for call in done.choices[0].message.tool_calls or []]
    chunks = list(
        client.chat.completions.create(model="scripted:tools", messages=messages, tools=[WEATHER], stream=True)
    )
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    made = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
    return [
        {"id": m.id, "type": "function", "function": {"name": m.function.name, "arguments": m.function.arguments}}
        for m in made
        if m.function
    ]


def test_a_message_instead_of_a_result_continues_without_it(client: OpenAI, server: Server) -> None:
    headers = new_name()
    asked = "use tool weather {}"
    client.chat.completions.create(
        model="scripted:tools", messages=[{"role": "user", "content": asked}], tools=[WEATHER], extra_headers=headers
    )

    done = client.chat.completions.create(
        model="holdfast", messages=[{"role": "user", "content": "never mind"}], extra_headers=headers
    )

    assert done.choices[0].message.content == "You said: never mind"


def test_a_client_that_names_its_session_may_send_only_the_result(client: OpenAI) -> None:
    headers = new_name()
    first = client.chat.completions.create(
        model="scripted:tools",
        messages=[{"role": "user", "content": "use tool weather {}"}],
        tools=[WEATHER],
        extra_headers=headers,
    )
    call = (first.choices[0].message.tool_calls or [])[0]

    done = client.chat.completions.create(
        model="scripted:tools",
        messages=[{"role": "tool", "tool_call_id": call.id, "content": "Snow."}],
        tools=[WEATHER],
        extra_headers=headers,
    )

    assert "Snow." in (done.choices[0].message.content or "")


def test_the_servers_own_tools_run_on_the_server(client: OpenAI, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("the marker is 4711")
    asked = f'use tool read_file {{"path": "{tmp_path}/note.txt"}}'

    done = client.chat.completions.create(model="scripted:tools", messages=[{"role": "user", "content": asked}])

    assert "4711" in (done.choices[0].message.content or "")
    assert done.choices[0].message.tool_calls is None


def test_a_reply_in_several_steps_is_recognised_when_the_client_sends_it_back(client: OpenAI, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("x")
    asked = f'use tool read_file {{"path": "{tmp_path}/note.txt"}}\n{uuid.uuid4().hex}'
    messages: list[Any] = [{"role": "user", "content": asked}]
    stream = client.chat.completions.create(model="scripted:tools", messages=messages, stream=True)
    said = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)

    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]
    second = client.chat.completions.with_raw_response.create(model="holdfast", messages=messages)

    assert second.headers["x-session-id"] == stream.response.headers["x-session-id"]


def test_a_failed_turn_is_an_error_that_names_the_session_and_is_not_retried(tmp_path: Path) -> None:
    headers = new_name()
    with Server(tmp_path / "home", alone="fails") as server, server.openai(max_retries=2) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model="holdfast", messages=[{"role": "user", "content": "do it"}], extra_headers=headers
            )
        after = client.chat.completions.with_raw_response.create(
            model="holdfast", messages=[{"role": "user", "content": "well?"}], extra_headers=headers
        )

    assert caught.value.code == "refused"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert after.headers["x-session-id"] == caught.value.response.headers["x-session-id"]
    assert after.parse().choices[0].message.content == "Then again, why not."


def test_a_failed_turn_ends_its_stream_with_an_error(tmp_path: Path) -> None:
    with Server(tmp_path / "home", alone="fails") as server, server.openai() as client:
        stream = client.chat.completions.create(
            model="holdfast", messages=[{"role": "user", "content": "do it"}], stream=True
        )

        with pytest.raises(openai.APIError, match="I will not"):
            list(stream)


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])

    assert caught.value.code == "model_not_found"


def test_the_models_are_listed(client: OpenAI) -> None:
    names = [model.id for model in client.models.list()]

    assert names[:3] == ["holdfast", "scripted:echo", "scripted:tools"]


def test_images_and_files_are_accepted(client: OpenAI) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    done = client.chat.completions.create(
        model="holdfast",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{dot}"}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
                    {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}},
                ],
            }
        ],
    )

    assert (done.choices[0].message.content or "").startswith("You said: Look")
