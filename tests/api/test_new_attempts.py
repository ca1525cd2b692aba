"""A reply that breaks off is asked for again. A client that does not stream gets only the reply that counts."""

from collections.abc import Iterator

import pytest

from tests.api.serving import Server, ask, text


@pytest.fixture(scope="module")
def breaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("breaking") / "home", alone="breaks") as server:
        yield server


def test_a_chat_completion_has_no_text_of_the_failed_attempt(breaking: Server) -> None:
    with breaking.http() as http:
        assert text(ask(http, "hello")) == "Whole."


def test_a_response_has_no_text_of_the_failed_attempt(breaking: Server) -> None:
    with breaking.openai() as client:
        assert client.responses.create(model="holdfast", input="hi").output_text == "Whole."


def test_a_message_has_neither_text_nor_thinking_of_the_failed_attempt(breaking: Server) -> None:
    with breaking.anthropic() as client:
        message = client.messages.create(
            model="holdfast",
            max_tokens=2_000,
            messages=[{"role": "user", "content": "good day"}],
            thinking={"type": "enabled", "budget_tokens": 1_024},
        )

    assert [(block.type, getattr(block, block.type)) for block in message.content] == [
        ("thinking", "Kept."),
        ("text", "Whole."),
    ]
