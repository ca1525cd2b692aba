import base64
from typing import Any

import msgspec

from holdfast.model.message import File, Image, Reasoning, Text, ToolResult
from holdfast.providers.anthropic.request import MAX_TOKENS, render
from tests.providers.messages import TERMINAL, anthropic_body, asking, called, message, model, result, user

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
MARK = {"cache_control": {"type": "ephemeral"}}


def rendered(*said: Any, **how: Any) -> dict[str, Any]:
    return anthropic_body(asking(*said, **how))


def test_a_conversation_with_a_call_has_the_format_of_the_api() -> None:
    body = rendered(user("list"), model("Sure.", called()), result(), user("quick"), model("Three."), user("thanks"))

    assert body == {
        "model": "m",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "system": [{"type": "text", "text": "Be kind.", **MARK}],
        "tools": [{"name": "terminal", "description": "Run a command.", "input_schema": TERMINAL.parameters}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "list"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Sure."},
                    {"type": "tool_use", "id": "c1", "name": "terminal", "input": {"command": "ls"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "three files"}]},
                    {"type": "text", "text": "quick", **MARK},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Three."}]},
            {"role": "user", "content": [{"type": "text", "text": "thanks", **MARK}]},
        ],
    }


def test_without_a_system_text_the_tools_end_with_the_breakpoint() -> None:
    body = rendered(user("hi"), system="")

    assert "system" not in body
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}


def test_the_limit_is_sent_and_the_temperature_is_not() -> None:
    body = anthropic_body(msgspec.structs.replace(asking(user("hi")), max_tokens=5, temperature=0.5))

    assert body["max_tokens"] == 5
    assert "temperature" not in body


def test_a_request_without_tools_still_declares_those_that_were_called() -> None:
    body = rendered(user("a"), model(called("1", "x"), called("2", "y")), model(called("3", "x")), tools=())

    assert [tool["name"] for tool in body["tools"]] == ["x", "y"]
    assert body["tool_choice"] == {"type": "none"}


def test_a_request_that_never_had_tools_declares_none() -> None:
    assert not {"tools", "tool_choice"} & rendered(user("a"), tools=()).keys()


def test_a_failed_call_is_an_error_and_shows_only_text() -> None:
    shot = ToolResult("c1", (Text("no"), Image(f"data:image/png;base64,{PNG}")), "failed")

    body = rendered(user("a"), model(called()), message("tool", shot))

    told = body["messages"][-1]["content"][0]
    assert told["is_error"] is True
    assert [block["type"] for block in told["content"]] == ["text", "text", "text"]


def test_images_and_files_are_separate_blocks() -> None:
    pdf = base64.b64encode(b"%PDF-1.7").decode()
    parts = (
        Image(f"data:image/jpeg;base64,{PNG}"),
        Image("https://example.org/a.png"),
        File(f"data:application/pdf;base64,{pdf}", "a.pdf"),
        File("data:text/plain,words", "b.txt"),
        Image("file:c.png"),
    )

    body = rendered(user(*parts))

    assert [block.get("source", block.get("text")) for block in body["messages"][0]["content"]] == [
        {"type": "base64", "media_type": "image/png", "data": PNG},
        {"type": "url", "url": "https://example.org/a.png"},
        {"type": "base64", "media_type": "application/pdf", "data": pdf},
        "[file b.txt]\nwords",
        "[image that cannot be shown here: file:c.png]",
    ]


def test_an_image_in_a_result_stays_in_it() -> None:
    shot = ToolResult("c1", (Image(f"data:image/png;base64,{PNG}"),))

    body = rendered(user("a"), model(called()), message("tool", shot))

    assert body["messages"][-1]["content"][0]["content"][0]["type"] == "image"


def kept(text: str, prefix: str, server: str = "api.anthropic.com", **opaque: str) -> Reasoning:
    return Reasoning(text, "anthropic", {"server": server, "prefix": prefix, **opaque})


def blocks(body: dict[str, Any]) -> list[str]:
    return [block["type"] for message in body["messages"] for block in message["content"]]


def test_thinking_is_sent_back_unchanged_after_the_same_content() -> None:
    prefix = render(asking(user("a"))).fingerprint
    thoughts = (kept("hm", prefix, signature="sig"), kept("", prefix, data="sealed"))

    body = rendered(user("a"), model(*thoughts, "b", called()), result())

    assert body["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "sealed"},
    ]


def test_thinking_of_a_later_answer_is_sent_back_with_that_of_the_earlier() -> None:
    first = (user("a"), model(kept("1", render(asking(user("a"))).fingerprint, signature="x"), called()), result())
    second = model(kept("2", render(asking(*first)).fingerprint, signature="y"), "done")

    assert blocks(rendered(*first, second, user("b"))).count("thinking") == 2


def test_thinking_is_left_out_when_the_content_before_it_has_changed() -> None:
    prefix = render(asking(user("a"))).fingerprint
    said = (model(kept("hm", prefix, signature="sig"), "b"), user("c"))

    assert "thinking" in blocks(rendered(user("a"), *said))
    assert "thinking" not in blocks(rendered(user("a summary"), *said))
    assert "thinking" not in blocks(rendered(user("a"), *said, system="Be brief."))
    assert "thinking" not in blocks(rendered(user("a"), *said, tools=()))


def test_thinking_is_sent_to_no_other_server_and_no_other_provider() -> None:
    prefix = render(asking(user("a"))).fingerprint
    elsewhere = kept("hm", prefix, "elsewhere", signature="sig")
    foreign = Reasoning("hm", "openai", {"server": "api.anthropic.com", "prefix": prefix, "signature": "sig"})

    assert "thinking" not in blocks(rendered(user("a"), model(elsewhere, foreign, "b"), user("c")))


def test_thinking_without_a_signature_is_left_out() -> None:
    prefix = render(asking(user("a"))).fingerprint

    assert "thinking" not in blocks(rendered(user("a"), model(kept("hm", prefix), "b"), user("c")))


def test_no_answer_ends_with_thinking() -> None:
    prefix = render(asking(user("a"))).fingerprint

    body = rendered(user("a"), model("b", kept("hm", prefix, signature="sig")), user("c"))

    assert blocks(body) == ["text", "text", "text"]
