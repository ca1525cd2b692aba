"""The export of a real server to a collector, also when either of them goes away."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import KEY, Server, write_config
from tests.crash.programs import wait_until
from tests.telemetry.collector_server import CollectorServer, attributes

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


class TracedServer(Server):
    def __init__(self, home: Path, collector: CollectorServer, more: str = "") -> None:
        self._collector, self._more = collector, more
        super().__init__(home)

    def start(self) -> None:
        write_config(self.home)
        with (self.home / "config.toml").open("a") as file:
            file.write(f'[telemetry]\nendpoint = "{self._collector.url}"\nheaders = {{ x-key = "secret-key" }}\n')
            file.write(self._more)
        super().start()


@pytest.fixture
def collector() -> Iterator[CollectorServer]:
    with CollectorServer() as running:
        yield running


def chat(server: Server, text: str, model: str = "echo") -> str:
    """Play a turn; returns the session's id."""
    with server.http() as http:
        body = {"model": server.model(model), "messages": [{"role": "user", "content": text}]}
        response = http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        return response.headers["x-session-id"]


def is_playing(server: Server, session_id: str, recovered: int) -> bool:
    """Whether the turn runs after so many recoveries."""
    with server.http() as http:
        state = http.get(f"/v1/sessions/{session_id}").json()["state"]
        events = http.get(f"/v1/sessions/{session_id}/events").json()["events"]
    return state == "running" and sum(event["kind"] == "recovered" for event in events) == recovered


def roots(collector: CollectorServer) -> list[Any]:
    return [span for span in collector.spans() if not span.parent_span_id]


def test_traces_metrics_and_logs_of_a_turn_arrive_without_its_content(
    tmp_path: Path, collector: CollectorServer
) -> None:
    with TracedServer(tmp_path / "home", collector) as server:
        session_id = chat(server, "say the secret word: holdout")
        wait_until(lambda: "holdfast.turn.duration" in collector.metrics(), "metrics")

    [root] = roots(collector)
    [call] = [span for span in collector.spans() if span.parent_span_id == root.span_id]
    assert attributes(root)["gen_ai.conversation.id"] == session_id
    assert attributes(call)["gen_ai.operation.name"] == "chat"
    assert root.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano <= root.end_time_unix_nano
    names = [record.event_name for record in collector.logs()]
    assert {"holdfast.turn_started", "holdfast.model_said", "holdfast.turn_ended"} <= set(names)
    assert {headers["x-key"] for _, headers, _ in collector.requests} == {"secret-key"}
    assert "holdout" not in str(collector.requests)


def test_the_trace_of_a_turn_that_was_killed_twice_is_complete_and_linked(
    tmp_path: Path, collector: CollectorServer
) -> None:
    with TracedServer(tmp_path / "home", collector) as server:
        with server.http() as http:
            session_id = http.post("/v1/sessions", json={"model": server.model("slow")}).json()["id"]
            http.post(f"/v1/sessions/{session_id}/turns", json={"input": "go"})
        for recovered in range(2):
            wait_until(lambda: is_playing(server, session_id, recovered), "the turn runs")  # noqa: B023 - waited for here
            server.kill()
            server.restart()
        wait_until(lambda: len(roots(collector)) > 0, "the trace")

    [root] = roots(collector)
    spans = collector.spans()
    attempts = [span for span in spans if span.name.startswith("attempt")]
    assert [span.name for span in attempts] == ["attempt 1", "attempt 2", "attempt 3"]
    assert [link.span_id for span in attempts for link in span.links] == [span.span_id for span in attempts[:2]]
    assert attributes(root)["holdfast.turn.outcome"] == "done"
    parents = {span.span_id for span in spans}
    assert all(span.parent_span_id in parents for span in spans if span.parent_span_id), "no span is missing"


def counted_turns(collector: CollectorServer) -> int:
    return sum(sum(point.bucket_counts) for point in collector.metrics().get("holdfast.turn.duration", []))


def test_every_turn_is_exported_once_the_collector_answers_and_after_a_kill(
    tmp_path: Path, collector: CollectorServer
) -> None:
    collector.statuses.append(503)
    with TracedServer(tmp_path / "home", collector) as server:
        sessions = {chat(server, f"message {n}") for n in range(5)}
        wait_until(lambda: counted_turns(collector) >= 5, "five turns")
        assert counted_turns(collector) == 5, "a request that was tried again counts once"
        server.kill()
        server.restart()
        sessions.add(chat(server, "after a kill"))
        wait_until(lambda: len({span.span_id for span in roots(collector)}) >= 6, "six traces")

    exported = Counter(attributes(span)["gen_ai.conversation.id"] for span in roots(collector))
    assert set(exported) == sessions


def test_the_trace_of_a_sub_agent_is_linked_to_its_parents(tmp_path: Path, collector: CollectorServer) -> None:
    with TracedServer(tmp_path / "home", collector) as server:
        parent = chat(server, 'use tool delegate {"task": "hello"}', "tools")
        wait_until(lambda: len(roots(collector)) >= 2, "two traces")

    by_session = {attributes(span)["gen_ai.conversation.id"]: span for span in roots(collector)}
    [child] = [span for name, span in by_session.items() if name != parent]
    assert [(link.trace_id, link.span_id) for link in child.links] == [
        (by_session[parent].trace_id, by_session[parent].span_id)
    ]


def test_a_fork_does_not_export_the_turns_of_its_parent_again(tmp_path: Path, collector: CollectorServer) -> None:
    with TracedServer(tmp_path / "home", collector) as server:
        session_id = chat(server, "one")
        with server.http() as http:
            forked = http.post(f"/v1/sessions/{session_id}/fork", json={}).json()["id"]
            http.post(f"/v1/sessions/{forked}/turns", json={"input": "two"})
        wait_until(lambda: len(roots(collector)) >= 2, "two traces")

    assert sorted(attributes(span)["gen_ai.conversation.id"] for span in roots(collector)) == sorted(
        [session_id, forked]
    )


def test_a_rejected_request_is_logged_without_the_key_and_the_export_goes_on(
    tmp_path: Path, collector: CollectorServer
) -> None:
    collector.statuses.append(400)
    with TracedServer(tmp_path / "home", collector, 'signals = ["traces"]\n') as server:
        chat(server, "rejected")
        log = server.home / "logs"
        wait_until(
            lambda: any("rejected traces with status 400" in file.read_text() for file in log.iterdir()), "the warning"
        )
        kept = chat(server, "kept")
        wait_until(lambda: len(roots(collector)) > 0, "the trace")
        written = "".join(file.read_text() for file in log.iterdir())

    assert [attributes(span)["gen_ai.conversation.id"] for span in roots(collector)] == [kept]
    assert "secret-key" not in written
    assert KEY not in written
