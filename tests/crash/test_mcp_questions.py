"""An MCP server asks something, or runs a task, and the worker is killed meanwhile."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import KEY, Server, write_config
from tests.crash.programs import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

PROGRAM = Path(__file__).parents[1] / "fakes" / "mcp_raw.py"


class McpWorker(Server):
    """`holdfast serve` with an MCP server whose tool the model calls."""

    def __init__(self, home: Path, tool: str) -> None:
        self.home = home
        self.folder = home.parent / "deeds"
        self.folder.mkdir(parents=True)
        write_config(home, approval_seconds=3600)
        script = {"steps": [{"call": [{"name": f"mcp__raw__{tool}", "arguments": {}}]}, {"say": "Done."}]}
        (home / "plan.json").write_text(json.dumps(script))
        command = [sys.executable, str(PROGRAM), str(self.folder), "modern"]
        lines = [
            f'model = "scripted:{home}/plan.json"',
            "[api]",
            f'key = "{KEY}"',
            "[agent]",
            "approval_seconds = 3600",
        ]
        lines += ["[mcp.raw]", f"command = {json.dumps(command)}", "trust = true", "[liveness]", "sweep_seconds = 1"]
        (home / "config.toml").write_text("\n".join(lines))
        (home / "config.toml").chmod(0o600)
        self._options = ()
        self.port = 0
        self.start()

    def begin(self) -> str:
        with self.http() as web:
            session_id = web.post("/v1/sessions", json={}).json()["id"]
            assert web.post(f"/v1/sessions/{session_id}/turns", json={"input": "go"}).status_code == 202
        return str(session_id)

    def questions(self) -> list[dict[str, Any]]:
        with self.http() as web:
            return list(web.get("/v1/questions").json()["questions"])

    def events(self, session_id: str) -> list[dict[str, Any]]:
        with self.http() as web:
            return list(web.get(f"/v1/sessions/{session_id}/events").json()["events"])

    def results(self, session_id: str) -> list[dict[str, Any]]:
        return [event["body"] for event in self.events(session_id) if event["kind"] == "tool_ended"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[McpWorker]]:
    workers: list[McpWorker] = []
    yield workers
    for worker in workers:
        worker.__exit__(None, None, None)


def test_a_question_survives_the_death_of_its_worker_and_its_answer_continues_the_call(
    tmp_path: Path, started: list[McpWorker]
) -> None:
    started.append(worker := McpWorker(tmp_path / "home", "ask"))
    session_id = worker.begin()
    wait_until(lambda: len(worker.questions()) == 1, "the question")
    worker.kill()
    worker.restart()

    (question,) = worker.questions()
    assert (question["kind"], question["state"], question["message"]) == ("elicitation", "open", "Who are you?")
    assert question["form"]["required"] == ["name"]
    with worker.http() as web:
        path = f"/v1/questions/{question['id']}"
        wrong = web.post(path, json={"content": {"name": "x"}})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid")
        assert web.get(path).json()["state"] == "open"
        assert web.post(path, json={"content": {"name": "Ann"}}).status_code == 200
        assert web.post(path, json={"content": {"name": "Bob"}}).status_code == 409

    wait_until(lambda: bool(worker.results(session_id)), "the result")
    (result,) = worker.results(session_id)
    assert result["outcome"] == "ok"
    assert result["parts"][0]["text"] == 'answered accept {"age": 30, "name": "Ann"}'
    assert len((worker.folder / "calls").read_text().split()) == 2, "the call, and the call with the answer"
    assert worker.questions() == []


def test_a_task_is_polled_again_after_the_death_of_its_worker(tmp_path: Path, started: list[McpWorker]) -> None:
    started.append(worker := McpWorker(tmp_path / "home", "job"))
    session_id = worker.begin()
    wait_until((worker.folder / "polls").exists, "the first poll")
    assert [event["body"]["state"] for event in worker.events(session_id) if event["kind"] == "tool_checkpointed"]
    worker.kill()
    (worker.folder / "job-done").touch()
    worker.restart()

    wait_until(lambda: bool(worker.results(session_id)), "the result")
    (result,) = worker.results(session_id)
    assert (result["outcome"], result["parts"][0]["text"]) == ("ok", "dug")
    assert (worker.folder / "calls").read_text().split() == ["job"]
