"""Promise 24: only clients with the key have access."""

import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from holdfast import config
from holdfast.api.app import ROUTES as APP_ROUTES
from holdfast.api.native.routes import ENDPOINTS
from holdfast.api.transport import auth
from holdfast.model.errors import ReadOnly
from tests.api.serving import KEY, Server, ask

ROUTES = [("GET", "/v1/models"), ("GET", "/ready"), ("POST", "/v1/chat/completions"), ("GET", "/nowhere")]


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_request_without_the_key_is_refused(
    server: Server, method: str, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}

    response = httpx.request(method, server.url + path, headers=headers)

    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


def test_only_health_needs_no_key(server: Server) -> None:
    every = {(method, path) for method, path, _ in APP_ROUTES} | {
        (endpoint.method, endpoint.path) for endpoint in ENDPOINTS
    }
    with httpx.Client(base_url=server.url) as client:
        answers = {(method, path): client.request(method, path).status_code for method, path in every}

    assert {route for route, status in answers.items() if status != 401} == {("GET", "/health")}


def test_health_needs_no_key_and_reveals_nothing(server: Server) -> None:
    response = httpx.get(f"{server.url}/health")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8420", "localhost.evil.example", ""])
def test_a_request_to_an_unknown_host_is_refused(http: httpx.Client, host: str) -> None:
    response = http.get("/v1/models", headers={"host": host})

    assert response.status_code in (400, 403)
    assert response.json()["error"]["code"] in ("host_not_allowed", "invalid_http")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8420", "127.0.0.1", "[::1]:8420", "192.168.1.7:80", "LOCALHOST"]
)
def test_local_host_names_are_allowed(http: httpx.Client, host: str) -> None:
    assert http.get("/v1/models", headers={"host": host}).status_code == 200


def test_a_host_and_an_origin_can_be_allowed(tmp_path: Path) -> None:
    page = "https://chat.example"
    with Server(tmp_path / "home", hosts=["agent.example"], cors_origins=[page]) as server, server.http() as http:
        named = http.get("/v1/models", headers={"host": "agent.example", "origin": page})
        client = http.get("/v1/models", headers={"origin": "https://evil.example"})
        asking = {"origin": page, "access-control-request-method": "POST"}
        preflight = httpx.options(f"{server.url}/v1/chat/completions", headers=asking)

    assert named.status_code == 200
    assert named.headers["access-control-allow-origin"] == page
    assert "x-session-id" in named.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in client.headers
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == page


def test_foreign_origins_are_refused_by_default(server: Server, http: httpx.Client) -> None:
    asking = {"origin": "https://chat.example", "access-control-request-method": "POST"}

    assert httpx.options(f"{server.url}/v1/models", headers=asking).status_code == 401
    assert "access-control-allow-origin" not in http.get("/v1/models", headers=asking).headers


def test_the_request_id_is_in_the_response_the_error_and_the_log(server: Server, http: httpx.Client) -> None:
    made = http.get("/v1/models").headers["x-request-id"]
    given = http.get("/nowhere", headers={"x-request-id": "mine-1"}).headers["x-request-id"]
    strange = http.get("/v1/models", headers={"x-request-id": "a b"}).headers["x-request-id"]

    log = (server.home / "logs" / "holdfast.log").read_text()
    assert made.startswith("req-") and strange.startswith("req-")
    assert given == "mine-1"
    assert f"{made} GET /v1/models 200" in log and "mine-1 GET /nowhere 404" in log


def test_the_log_contains_neither_the_key_nor_messages(server: Server, http: httpx.Client) -> None:
    ask(http, "a secret between us")
    httpx.get(f"{server.url}/v1/models", headers={"authorization": "Bearer hfk-somebody-elses"})

    log = (server.home / "logs" / "holdfast.log").read_text()
    assert KEY not in log and "hfk-somebody-elses" not in log and "a secret between us" not in log


def test_a_key_that_cannot_be_created_is_an_error_of_saving(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["mount", "--bind", "-o", "ro", home, home], check=True)
    try:
        with pytest.raises(ReadOnly, match=f"cannot write {home}/api-key: Read-only file system"):
            auth.load_or_create_key(config.read({}, home))
    finally:
        subprocess.run(["umount", home], check=True)


def test_the_key_is_created_once_in_a_private_file_and_reused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Server(home) as server:
        config = home / "config.toml"
        config.write_text("\n".join(line for line in config.read_text().splitlines() if not line.startswith("key")))
        server.stop()
        server.restart()
        first = (home / "api-key").read_text().strip()
        headers = {"authorization": f"Bearer {first}"}
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        server.stop()
        server.restart()

    assert (home / "api-key").read_text().strip() == first
    assert len(first) > 40
    assert stat.S_IMODE((home / "api-key").stat().st_mode) == 0o600


def test_a_public_listen_address_prints_a_warning(tmp_path: Path) -> None:
    with Server(tmp_path / "home", "--host", "0.0.0.0") as server:
        assert "warning: anyone who can reach 0.0.0.0" in server.process.stderr


def test_ready_reports_what_is_wrong(http: httpx.Client) -> None:
    response = http.get("/ready")

    assert response.status_code == 200
    assert response.json()["checks"] == {"store": "ok", "provider": "ok", "accepting": "ok", "tasks": "ok"}
