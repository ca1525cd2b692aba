"""Invalid requests to the Responses API: each is refused with its documented code and the parameter's name."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.errors import ApiError
from holdfast.api.openai.responses import request
from tests.api.serving import Server

UNKNOWN = "resp_" + "0" * 40
REFUSED: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"input": []}, 400, "invalid_request", "input"),
    ({"input": 7}, 400, "invalid_type", "input"),
    ({"input": [{"role": "wizard", "content": "x"}]}, 400, "invalid_value", "input[0].role"),
    ({"input": [{"role": "user"}]}, 400, "invalid_type", "input[0].content"),
    ({"input": [{"type": "web_search_call"}]}, 400, "unsupported_content", "input[0].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, 400, "invalid_request", "input[0].id"),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "unsupported_content", None),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        400,
        "unsupported_content",
        None,
    ),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, 400, "invalid_image", None),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://a"}]}]},
        400,
        "unsupported_content",
        None,
    ),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, 400, "invalid_request", "input"),
    ({"input": [{"role": "assistant", "content": "x"}]}, 400, "invalid_request", "input"),
    ({"previous_response_id": UNKNOWN}, 404, "response_not_found", "previous_response_id"),
    ({"previous_response_id": "resp_x"}, 404, "response_not_found", "previous_response_id"),
    ({"previous_response_id": UNKNOWN, "conversation": "x"}, 400, "invalid_value", "conversation"),
    ({"conversation": "hf-00000000000000000000"}, 404, "session_not_found", None),
    ({"conversation": {"id": 3}}, 400, "invalid_type", "conversation"),
    ({"conversation": {}}, 400, "invalid_type", "conversation"),
    ({"background": True, "store": False}, 400, "invalid_value", "store"),
    ({"tools": [{"type": "web_search"}]}, 400, "unsupported_parameter", "tools[0].type"),
    ({"tools": [{"type": "function", "name": "a b"}]}, 400, "invalid_value", None),
    ({"tool_choice": {"type": "web_search"}}, 400, "invalid_value", "tool_choice"),
    ({"parallel_tool_calls": 21}, 400, "invalid_type", "parallel_tool_calls"),
    ({"include": ["file_search_call.results"]}, 400, "unsupported_parameter", "include"),
    ({"prompt": {"id": "x"}}, 400, "unsupported_parameter", "prompt"),
    ({"top_logprobs": 2}, 400, "unsupported_parameter", "top_logprobs"),
    ({"reasoning": {"effort": "high"}}, 400, "unsupported_parameter", "reasoning"),
    ({"text": {"format": {"type": "json_object"}}}, 400, "unsupported_parameter", "text.format"),
    ({"metadata": {str(n): "x" for n in range(17)}}, 400, "invalid_value", "metadata"),
    ({"temperature": 3}, 400, "invalid_value", "temperature"),
    ({"max_output_tokens": 0}, 400, "invalid_value", "max_output_tokens"),
    ({"model": "gpt-9"}, 404, "model_not_found", None),
]


@pytest.mark.parametrize(("body", "status", "code", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_an_invalid_request_is_refused_and_the_parameter_is_named(
    http: httpx.Client, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    answer = http.post("/v1/responses", json={"model": "holdfast", "input": "hello", **body})

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/responses/resp_nothing", 404, "response_not_found"),
        (f"/v1/responses/{UNKNOWN}", 404, "response_not_found"),
        (f"/v1/responses/{UNKNOWN}_1", 404, "response_not_found"),
        (f"/v1/responses/{UNKNOWN}?stream=maybe", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}?starting_after=3", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}?stream=true&starting_after=-1", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}?stream=true&starting_after=9999999999999999999999999", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}?include=x", 400, "unsupported_parameter"),
        (f"/v1/responses/{UNKNOWN}?what=x", 400, "unsupported_parameter"),
        (f"/v1/responses/{UNKNOWN}/input_items?limit=0", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}/input_items?limit=00000000000000000001999", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}/input_items?limit={'9' * 5000}", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}/input_items?limit=", 400, "invalid_value"),
        (f"/v1/responses/{UNKNOWN}/input_items?limit=0099", 404, "response_not_found"),
        (f"/v1/responses/{UNKNOWN}/input_items?order=up", 400, "invalid_value"),
    ],
)
def test_an_unknown_response_is_not_found(http: httpx.Client, path: str, status: int, code: str) -> None:
    answer = http.get(path)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_turn_of_chat_completions_is_not_a_response(http: httpx.Client) -> None:
    body = {"model": "holdfast", "messages": [{"role": "user", "content": "hello"}]}
    about = http.post("/v1/chat/completions", json=body).json()["holdfast"]
    id_ = f"resp_{about['session_id'].removeprefix('hf-')}{about['turn_id'].removeprefix('turn-')}"

    assert http.get(f"/v1/responses/{id_}").status_code == 404


def test_a_response_of_a_session_in_the_trash_is_not_found(own: Server) -> None:
    import subprocess
    import sys

    with own.http() as http:
        done = http.post("/v1/responses", json={"model": "holdfast", "input": "hello"}).json()
        session = done["holdfast"]["session_id"]
        command = [sys.executable, "-m", "holdfast", "--home", str(own.home), "sessions", "delete", session]
        subprocess.run(command, check=True, capture_output=True)

        assert http.get(f"/v1/responses/{done['id']}").status_code == 404
        more = {"model": "holdfast", "input": "x", "previous_response_id": done["id"]}
        assert http.post("/v1/responses", json=more).status_code == 404


anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.sampled_from(["function", "message", "user", "assistant", "namespace", "function_call", "auto", "required"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "name", "call_id", "arguments", "output", "id", "tools", "format", "text"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
NAMES = [*request.ResponsesRequest.__struct_fields__, *request.NO_EFFECT, "seed", "n"]


@given(more=st.dictionaries(st.sampled_from(NAMES), anything, max_size=4), items=st.lists(anything, max_size=3))
def test_no_body_crashes_the_parser(more: dict[str, Any], items: list[Any]) -> None:
    usual: dict[str, Any] = {"model": "holdfast", "input": items or "hello"}
    try:
        request.parse(json.dumps({**usual, **more}).encode())
    except ApiError as refusal:
        assert refusal.status < 500
