import base64
import json
from typing import Any

import msgspec
import pytest

from holdfast.model.message import File, Image, Reasoning, Text, ToolResult
from holdfast.model.provider import ToolSpec
from tests.providers.messages import TERMINAL, asking, called, message, model, openai_body, result, user

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def messages(*said: Any, server: str = "api.openai.com") -> list[dict[str, Any]]:
    body: Any = openai_body(asking(*said), server=server)
    return list(body["messages"])


def test_a_conversation_with_a_call_has_the_format_of_the_api() -> None:
    body = openai_body(asking(user("list"), model("Sure.", called()), result(), model("Three."), user("thanks")))

    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "terminal", "description": "Run a command.", "parameters": TERMINAL.parameters},
            }
        ],
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "list"},
            {
                "role": "assistant",
                "content": "Sure.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "terminal", "arguments": '{"command": "ls"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "three files"},
            {"role": "assistant", "content": "Three."},
            {"role": "user", "content": "thanks"},
        ],
    }


def test_options_that_are_not_set_are_not_sent() -> None:
    body = openai_body(asking(user("hi"), system=" ", tools=()))

    assert body.keys() == {"model", "messages", "stream", "stream_options"}
    assert body["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("server", "field"),
    [
        ("api.openai.com", "max_completion_tokens"),
        ("me.openai.azure.com", "max_completion_tokens"),
        ("localhost:8080", "max_tokens"),
    ],
)
def test_the_token_limit_has_the_field_name_that_the_server_knows(server: str, field: str) -> None:
    body = openai_body(msgspec.structs.replace(asking(user("hi")), max_tokens=5, temperature=0.5), server=server)

    assert {"max_tokens", "max_completion_tokens"} & body.keys() == {field}
    assert (body[field], body["temperature"]) == (5, 0.5)


def test_an_outcome_other_than_success_is_named() -> None:
    said = messages(user("a"), model(called()), message("tool", ToolResult("c1", (Text("no such file"),), "failed")))

    assert said[-1]["content"] == "[failed]\nno such file"


def test_images_of_the_user_are_parts() -> None:
    said = messages(user("look", Image(PNG, detail="low"), Image("https://example.org/a.png")))

    assert said[-1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


def test_images_of_a_result_follow_in_a_user_message() -> None:
    shot = message("tool", ToolResult("c1", (Text("done"), Image(PNG))))

    said = messages(user("a"), model(called("c1"), called("c2")), shot, result("c2"), user("well?"))

    assert [part["role"] for part in said] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [part["type"] for part in said[-1]["content"]] == ["text", "image_url", "text"]
    assert said[3]["content"].startswith("done\n[image")


def test_images_of_the_last_results_are_included_too() -> None:
    said = messages(user("a"), model(called()), message("tool", ToolResult("c1", (Image(PNG),))))
    later = messages(
        user("a"), model(called()), message("tool", ToolResult("c1", (Image(PNG),))), model("I see."), user("good")
    )

    assert [part["role"] for part in said[-2:]] == ["tool", "user"]
    assert later[: len(said)] == said


def test_a_pdf_is_sent_as_a_file_and_text_as_text() -> None:
    pdf = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.7").decode()

    said = messages(user(File(pdf, "a.pdf"), File("data:text/plain,words", "b.txt"), File("file:c.zip")))

    assert said[-1]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
        {"type": "text", "text": "[file b.txt]\nwords"},
        {"type": "text", "text": "[file that cannot be shown here: file:c.zip]"},
    ]


def thought(text: str, server: str = "s", **opaque: str) -> Reasoning:
    return Reasoning(text, "openai", {"server": server, **opaque})


def test_reasoning_is_sent_back_with_the_calls_in_its_original_field() -> None:
    said = messages(
        user("a"), model(thought("hm", field="reasoning"), called()), result(), model("b"), user("c"), server="s"
    )

    assert said[2]["reasoning"] == "hm"
    assert "reasoning" not in said[4]


def test_once_a_server_requires_its_reasoning_every_answer_with_calls_has_the_field() -> None:
    said = messages(
        user("a"),
        model(called("c1")),
        result("c1"),
        model(thought("hm", field="reasoning_content"), called("c2")),
        result("c2"),
        server="s",
    )

    assert [part["reasoning_content"] for part in said if part["role"] == "assistant"] == ["", "hm"]


def test_a_server_known_to_require_the_field_gets_it_from_the_start() -> None:
    said = messages(user("a"), model(called()), result(), server="api.deepseek.com")

    assert said[2]["reasoning_content"] == ""


def test_details_of_reasoning_and_extras_of_calls_are_sent_back_unchanged() -> None:
    details = [{"type": "reasoning.encrypted", "data": "xyz", "index": 0}]
    extra = {"c1": {"google": {"thought_signature": "sig"}}}
    kept = thought("", reasoning_details=json.dumps(details), extra_content=json.dumps(extra))

    said = messages(user("a"), model(kept, called("c1"), called("c2")), result("c1"), result("c2"), server="s")

    assert said[2]["reasoning_details"] == details
    assert said[2]["tool_calls"][0]["extra_content"] == extra["c1"]
    assert "extra_content" not in said[2]["tool_calls"][1]


def test_reasoning_is_sent_to_no_other_server_and_no_other_provider() -> None:
    details = json.dumps([{"type": "reasoning.text"}])
    mine = thought("secret", server="other", field="reasoning", reasoning_details=details)
    foreign = Reasoning("secret", "anthropic", {"server": "s", "field": "reasoning", "reasoning_details": details})

    said = messages(user("a"), model(mine, foreign, "b", called()), result(), server="s")

    assert "secret" not in json.dumps(said)
    assert said[2].keys() == {"role", "content", "tool_calls"}


def test_stored_reasoning_that_cannot_be_read_is_left_out() -> None:
    kept = thought("hm", reasoning_details="{not json", extra_content='["no object"]')

    assert messages(user("a"), model(kept, called()), result(), server="s")[2].keys() == {
        "role",
        "content",
        "tool_calls",
    }


def test_calls_have_the_name_that_their_tool_has_in_the_request() -> None:
    tools = (ToolSpec("a.b", "", {}), ToolSpec("a_b", "", {}))
    body: Any = openai_body(asking(user("x"), model(called("1", "a_b"), called("2", "gone!")), tools=tools))

    assert [tool["function"]["name"] for tool in body["tools"]] == ["a_b", "a_b_2"]
    assert [call["function"]["name"] for call in body["messages"][2]["tool_calls"]] == ["a_b_2", "gone_"]
