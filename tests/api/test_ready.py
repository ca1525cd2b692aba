"""`/ready` tells what is wrong, and the limits that can be set are kept."""

import resource
from pathlib import Path

from tests.api.serving import Server, ask
from tests.crash.programs import wait_until

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_a_model_without_a_key_is_said(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        config = tmp_path / "home" / "config.toml"
        config.write_text(config.read_text().replace("scripted:echo", "anthropic:some-model", 1))
        server.stop()
        server.restart()
        with server.http() as http:
            response = http.get("/ready")

    assert response.status_code == 503
    assert response.json()["status"] == "unavailable"
    assert response.json()["checks"] == {"store": "ok", "provider": "no key is set for anthropic", "accepting": "ok"}


def test_a_store_that_cannot_be_written_is_said_and_so_is_that_it_can_again(own: Server) -> None:
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
    assert refused.status_code == 507, "nothing is taken in that cannot be kept"
    assert (alive.status_code, spoken.status_code) == (200, 200)


def test_the_limit_of_a_body_can_be_set(tmp_path: Path) -> None:
    with Server(tmp_path / "home", max_body_mb=1) as server, server.http() as http:
        within = http.post("/v1/sessions", json={"system": "x" * 1_000_000})
        over = [http.post("/v1/sessions", json={"system": "x" * 1_100_000}), ask(http, "x" * 1_100_000)]

    assert within.status_code == 201
    assert [response.status_code for response in over] == [413, 413]
    assert over[0].json()["error"]["code"] == "request_too_large"
