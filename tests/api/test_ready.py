"""`/ready` reports what is wrong, and configured limits are enforced."""

import resource
from pathlib import Path

import httpx

from holdfast.api import health
from holdfast.supervisor import Supervisor
from tests.api.serving import Server, ask, session
from tests.crash.programs import wait_until
from tests.fakes.clock import FakeClock
from tests.store.health.test_damage import damaged

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_ready_reports_a_model_without_an_api_key(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        config = tmp_path / "home" / "config.toml"
        config.write_text(config.read_text().replace("scripted:echo", "anthropic:some-model", 1))
        server.stop()
        server.restart()
        with server.http() as http:
            response = http.get("/ready")

    assert response.status_code == 503
    assert response.json()["status"] == "unavailable"
    assert response.json()["checks"] == {
        "store": "ok",
        "tasks": "ok",
        "provider": "no API key is set for anthropic",
        "accepting": "ok",
    }


def test_ready_reports_an_unwritable_store_and_its_recovery(own: Server) -> None:
    with own.http() as http:
        assert http.get("/ready").status_code == 200
        resource.prlimit(own.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        bad = http.get("/ready")
        refused = ask(http, "hello")
        alive = http.get("/health")
        resource.prlimit(own.process.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
        wait_until(lambda: http.get("/ready").status_code == 200, "the store to be there again")
        spoken = ask(http, "hello")

    assert bad.status_code == 503 and bad.json()["checks"]["store"] != "ok"
    assert bad.json()["checks"]["provider"] == "ok"
    assert refused.status_code == 507, "nothing is accepted that cannot be stored"
    assert (alive.status_code, spoken.status_code) == (200, 200)


def test_a_store_with_a_damaged_page_is_not_ready(own: Server) -> None:
    with own.http() as http:
        name = session(ask(http, "hello"))
    own.stop()
    with damaged(own.home / "holdfast.db"):
        own.restart()
        with own.http() as http:
            broken = http.get(f"/v1/sessions/{name}/messages")
            wait_until(lambda: http.get("/ready").status_code == 503, "the damage to be told")
            after = http.get("/ready")
        own.stop()

    assert broken.status_code == 500
    assert "is damaged" in after.json()["checks"]["store"]


def test_promise_26_ready_names_a_task_that_stays_down() -> None:
    clock = FakeClock()
    report = Supervisor(clock).watch("janitor", every=1)
    report.failed(OSError(24, "Too many open files"))
    clock.pass_seconds(31)

    assert health._tasks([report.status()]) == "janitor is down: OSError: [Errno 24] Too many open files"


def test_ready_and_metrics_show_when_each_task_last_completed_a_cycle(own: Server) -> None:
    def cycles() -> dict[str, object]:
        with own.http() as http:
            return {task["name"]: task["cycle_at"] for task in http.get("/ready").json()["tasks"]}

    wait_until(lambda: None not in (cycles().get("janitor"), cycles().get("cron")), "a cycle of each")
    with own.http() as http:
        metrics = http.get("/metrics").text
        wait_until(lambda: "janitor" in _stored(http), "a heartbeat to store the states")

    assert {"guard", "processes", "session return", "heartbeat", "store poller"} <= cycles().keys()
    for name in ("up", "cycle_age_seconds", "failures_total"):
        assert f'holdfast_task_{name}{{task="janitor"}}' in metrics
    assert "holdfast_store_up 1" in metrics


def _stored(http: httpx.Client) -> list[str]:
    """The tasks in the store, as other processes see them."""
    return [task["name"] for worker in http.get("/v1/workers").json()["workers"] for task in worker["tasks"]]


def test_the_limit_of_a_body_can_be_set(tmp_path: Path) -> None:
    with Server(tmp_path / "home", max_body_mb=1) as server, server.http() as http:
        within = http.post("/v1/sessions", json={"system": "x" * 1_000_000})
        over = [http.post("/v1/sessions", json={"system": "x" * 1_100_000}), ask(http, "x" * 1_100_000)]

    assert within.status_code == 201
    assert [response.status_code for response in over] == [413, 413]
    assert over[0].json()["error"]["code"] == "request_too_large"
