"""Where the commands of API sessions run."""

from pathlib import Path

import httpx
import pytest

from tests.api.serving import KEY, Server

pytestmark = pytest.mark.process


@pytest.fixture
def own(tmp_path: Path):
    with Server(tmp_path / "home", alone="tools") as server:
        config = server.home / "config.toml"
        config.write_text(config.read_text().replace('[terminal]\nbackend = "local"\n', ""))
        server.restart()
        yield server


def run(client: httpx.Client, command: str, **session: object) -> tuple[str, str]:
    """Create a session, run a command in it; return the id and the model's report."""
    created = client.post("/v1/sessions", json=session)
    assert created.status_code == 201, created.text
    found = created.json()["id"]
    body = {
        "model": "holdfast",
        "messages": [{"role": "user", "content": f'use tool terminal {{"command": "{command}"}}'}],
    }
    reply = client.post("/v1/chat/completions", json=body, headers={"x-session-id": found})
    return found, reply.json()["choices"][0]["message"]["content"]


def test_commands_of_the_api_cannot_change_the_system_unless_the_session_says_so(own: Server, tmp_path: Path) -> None:
    with httpx.Client(base_url=own.url, headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client:
        first, refused = run(client, "touch /srv/holdfast-test")
        second, done = run(client, f"touch {tmp_path}/outside", terminal="local")

        assert "Read-only" in refused
        assert "exit code 0" in done
        assert (tmp_path / "outside").exists()
        assert client.get(f"/v1/sessions/{first}/why").json()["terminal"] == "bubblewrap"
        assert client.get(f"/v1/sessions/{second}/why").json()["terminal"] == "local"


@pytest.mark.parametrize("backend", ["moon", "ssh", "container"])
def test_a_backend_that_does_not_exist_or_is_not_set_up_is_refused(own: Server, backend: str) -> None:
    with httpx.Client(base_url=own.url, headers={"authorization": f"Bearer {KEY}"}) as client:
        reply = client.post("/v1/sessions", json={"terminal": backend})

        assert reply.status_code == 400
        assert "terminal" in reply.json()["error"]["message"]
        assert client.get("/v1/sessions").json()["sessions"] == []
