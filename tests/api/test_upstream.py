"""Every parameter of a client reaches the model."""

import json
from pathlib import Path
from typing import Any

from tests.api.serving import Server, ask, text

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}


def asked(record: Path) -> list[Any]:
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_parameters_tools_and_system_text_reach_the_model(upstream: Server, record: Path) -> None:
    system = {"role": "system", "content": "Be a pirate."}
    with upstream.http() as http:
        response = ask(
            http,
            system,
            {"role": "user", "content": "hello"},
            temperature=0.25,
            max_tokens=77,
            top_p=0.5,
            stop=["END"],
            seed=3,
            response_format={"type": "json_object"},
            reasoning_effort="low",
            parallel_tool_calls=False,
            tools=[TOOL],
        )

    assert text(response) == "You said: hello"
    [sent] = asked(record)
    assert sent["messages"][0] == {"role": "system", "content": "Be a pirate."}
    assert (sent["temperature"], sent["max_tokens"], sent["top_p"]) == (0.25, 77, 0.5)
    assert (sent["stop"], sent["seed"], sent["response_format"]) == (["END"], 3, {"type": "json_object"})
    assert (sent["reasoning_effort"], sent["parallel_tool_calls"]) == ("low", False)
    assert sent["tools"][-1]["function"]["name"] == "weather"
    assert "terminal" in [tool["function"]["name"] for tool in sent["tools"]]


def test_tool_choice_required_offers_only_the_tools_of_the_client(upstream: Server, record: Path) -> None:
    with upstream.http() as http:
        ask(http, "hello", tools=[TOOL], tool_choice="required")

    [sent] = asked(record)
    assert sent["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["weather"]


def test_tool_choice_none_offers_no_tools(upstream: Server, record: Path) -> None:
    with upstream.http() as http:
        ask(http, "hello", tools=[TOOL], tool_choice="none")

    assert "tools" not in asked(record)[0]


def test_the_options_of_one_turn_do_not_apply_to_the_next(upstream: Server, record: Path) -> None:
    with upstream.http() as http:
        ask(http, "one", headers={"x-session-key": "a"}, temperature=0.5, tools=[TOOL])
        ask(http, "two", headers={"x-session-key": "a"})

    first, second = asked(record)
    assert "temperature" in first and "temperature" not in second
    assert len(first["tools"]) == len(second["tools"]) + 1


def test_the_client_decides_how_a_conversation_with_tools_continues(upstream: Server, record: Path) -> None:
    question = {"role": "user", "content": 'use tool weather {"place": "Bonn"}'}
    with upstream.http() as http:
        first = ask(http, question, tools=[TOOL]).json()["choices"][0]["message"]
        call = first["tool_calls"][0]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "Rain."}
        second = ask(http, question, first, result, tools=[TOOL])

    assert text(second) == "Done. Rain."
    roles = [message["role"] for message in asked(record)[1]["messages"]]
    assert roles[-3:] == ["user", "assistant", "tool"]
