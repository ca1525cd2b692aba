"""The requests of Claude Code, as it sent them to a recording server: its conversation is one session.

`tests/api/clients/test_claude_code.py` runs the program itself.
"""

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.anthropic.conftest import VERSION, listed, logged
from tests.api.anthropic.sdk_types import check_stream
from tests.api.serving import Server

Json = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}
REMINDER = {"type": "text", "text": "<system-reminder>\nAttribution.\n</system-reminder>\n"}
TOOLS: list[Json] = [
    {"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}},
    {"name": "Later", "description": "Not yet.", "input_schema": {"type": "object"}, "defer_loading": True},
]
TITLE_SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


class ClaudeCode:
    """Keeps a history as the program does, and sends all of it with each request."""

    def __init__(self, http: httpx.Client, model: str = "claude-opus-5-5", agent: str = "") -> None:
        self.id = str(uuid.uuid4())
        self.history: list[Json] = []
        self.agent = agent
        self._http = http
        self._model = model
        self._count = 0

    def post(self, messages: list[Json], system: str, **more: Any) -> list[Json]:
        self._count += 1
        billing = f"x-anthropic-billing-header: cc_version=2.1.325.{self._count}; cc_entrypoint=cli;"
        user = {"device_id": "d", "account_uuid": "", "session_id": self.id}
        body = {
            "model": self._model,
            "messages": messages,
            "system": [{"type": "text", "text": billing}, {"type": "text", "text": system, **MARK}],
            "metadata": {"user_id": json.dumps(user)},
            "max_tokens": 128_000,
            "stream": True,
            **more,
        }
        headers = {"x-claude-code-session-id": self.id, "x-stainless-retry-count": "0", "x-app": "cli"} | VERSION
        if self.agent:
            headers["x-claude-code-agent-id"] = self.agent
        response = self._http.post("/v1/messages", params={"beta": "true"}, json=body, headers=headers)
        assert response.status_code == 200, response.text
        return check_stream(response.text)

    def title(self, said: str) -> None:
        content = [{"type": "text", "text": f"<session>\n{said}\n</session>"}]
        output = {"effort": "medium", "format": {"type": "json_schema", "schema": TITLE_SCHEMA}}
        self.post([{"role": "user", "content": content}], "Name this session.", output_config=output)

    def check_quota(self) -> None:
        self.post([{"role": "user", "content": "quota"}], "You are a tool.", max_tokens=1)

    def summarize(self, upto: int) -> None:
        """Ask for a summary of the beginning, as the program does to compact its history."""
        last = {"role": "user", "content": [{"type": "text", "text": "CRITICAL: Respond with TEXT ONLY. Summarize."}]}
        self.main([*self.history[:upto], last])

    def compact(self) -> None:
        """Replace the history by a summary and the last reply."""
        summary = {"role": "user", "content": "This session is being continued. Summary: first and second words."}
        empty = {"role": "system", "content": [], "output_config": {"effort": "medium"}}
        self.history = [summary, empty, self.history[-1]]

    def main(self, messages: list[Json]) -> list[Json]:
        return self.post(
            messages,
            "You are a tool.",
            tools=TOOLS,
            thinking={"type": "adaptive", "display": "omitted"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            output_config={"effort": "medium"},
        )

    def send(self, *content: Json) -> str:
        """Send blocks of the user, with a system message after them; return the reply's text."""
        self.history.append({"role": "user", "content": list(content)})
        now = {"role": "system", "content": [{"type": "text", "text": "# Environment", **MARK}]}
        later = {"role": "system", "content": "# Environment", "output_config": {"effort": "medium"}}
        empty = {"role": "system", "content": [], "output_config": {"effort": "medium"}}
        marked = [*content[:-1], content[-1] | MARK]
        events = self.main(
            [*self.history[:-1], {"role": "user", "content": marked}, now if len(self.history) == 1 else empty]
        )
        if len(self.history) == 1:
            self.history.append(later)
        blocks: list[Json] = []
        for event in events:
            if event["type"] == "content_block_start":
                blocks.append(event["content_block"])
            elif event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
                blocks[-1]["text"] += event["delta"]["text"]
            elif event["type"] == "content_block_delta":
                blocks[-1]["input"] = json.loads(event["delta"]["partial_json"])
        self.history.append({"role": "assistant", "content": blocks})
        return "".join(block["text"] for block in blocks if block["type"] == "text")

    def say(self, text: str) -> str:
        return self.send(*([REMINDER] if not self.history else []), {"type": "text", "text": text})

    def give_result(self, text: str) -> str:
        call = self.history[-1]["content"][-1]
        return self.send({"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": False})


def test_a_conversation_is_one_session_and_other_requests_are_not_in_it(own: Server) -> None:
    with own.http() as http:
        claude = ClaudeCode(http)
        claude.check_quota()
        claude.title("first words")
        claude.say("first words")
        claude.title("second words")
        claude.say("second words")
        claude.summarize(2)
        [session] = listed(http)
    own.kill()
    own.restart()
    with own.http() as http:
        claude._http = http
        claude.compact()
        reply = claude.say("third words")

        [again] = listed(http)
        others = [one for one in listed(http, sides=True) if one["id"] != again["id"]]
        assert reply == "You said: third words"
        assert (again["id"], again["parent_id"]) == (session["id"], None)
        said = [text for role, text in logged(http, again["id"]) if role == "user"]
        assert said[0].endswith("first words") and [said[1], said[-1]] == ["second words", "third words"]
        assert len(others) == 4 and all(one["side_of"] is not None for one in others)


def test_its_tools_run_at_the_client_and_subagents_have_sessions_of_their_own(
    server: Server, http: httpx.Client
) -> None:
    before = {one["id"] for one in listed(http, sides=True)}
    claude = ClaudeCode(http, server.model("tools"))
    claude.say('use tool Bash {"command": "ls"}')
    helper = ClaudeCode(http, server.model("tools"), agent="a1")
    helper.id = claude.id
    helper.say('use tool Bash {"command": "pwd"}')
    helper.give_result("/home")
    done = claude.give_result("a.txt")
    claude.say("thanks")

    found = {one["channel"]: one for one in listed(http, sides=True) if one["id"] not in before}
    assert done == "done: Bash: a.txt"
    assert found.keys() == {f"key:{claude.id}", f"key:{claude.id}/a1"}
    assert (found[f"key:{claude.id}"]["turn_count"], found[f"key:{claude.id}/a1"]["turn_count"]) == (3, 2)


def test_the_model_receives_only_what_is_meant_for_it(upstream: Server, record: Path) -> None:
    with upstream.http() as http:
        claude = ClaudeCode(http)
        claude.say("first words")
        claude.say("second words")

    first, second = [json.loads(line) for line in record.read_text().splitlines()][:2]
    assert second["messages"][0] == {"role": "system", "content": "You are a tool.\n\n# Environment"}
    assert first["messages"][0] == second["messages"][0]
    assert [tool["function"]["name"] for tool in second["tools"]] == ["Bash"]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("user", ["user_a_account_b_session_{}", '{{"session_id": "{}"}}'])
def test_the_id_in_the_metadata_names_the_session_as_well(http: httpx.Client, user: str) -> None:
    name = str(uuid.uuid4())
    body = {"model": "holdfast", "max_tokens": 9, "metadata": {"user_id": user.format(name)}}
    for text in ("one", "two"):
        http.post("/v1/messages", json=body | {"messages": [{"role": "user", "content": text}]}, headers=VERSION)

    [session] = [one for one in listed(http) if one["channel"] == f"key:{name}"]
    assert session["turn_count"] == 2


def test_a_deferred_tool_is_offered_once_it_is_referenced(upstream: Server, record: Path) -> None:
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "Later"}]}
    with upstream.http() as http:
        claude = ClaudeCode(http)
        claude.history = [{"role": "user", "content": "find"}, {"role": "assistant", "content": [call]}]
        claude.send(result)

    sent = json.loads(record.read_text().splitlines()[-1])
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["Bash", "Later"]
