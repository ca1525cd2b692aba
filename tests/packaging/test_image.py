"""The container image, built and run with Podman."""

import json
import os
import signal
import subprocess
import time
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.packaging.podman import RUN, build, podman
from tests.packaging.wheelhouse import ROOT, pack_dependencies

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(900)]
KEY = "a-key-of-sixteen-characters"
EXTRAS = ("mcp", "psycopg", "psycopg-binary", "typing-extensions", "hatchling", "pip")


@pytest.fixture(scope="module")
def image(tmp_path_factory, wheels, debian):
    config = tmp_path_factory.mktemp("image") / "pip.conf"
    config.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    pack_dependencies(wheels.folder, EXTRAS)
    mounts = ("-v", f"{wheels.folder}:/wheels:ro", "-v", f"{config}:/etc/pip.conf:ro")
    name = build("image", ROOT, *mounts, "--build-arg", f"BASE={debian}")
    yield name
    podman("rmi", "-f", name)


ASK = """
import json, sys, urllib.request
path, body = json.load(sys.stdin)
headers = {"Authorization": "Bearer KEY", "Content-Type": "application/json", "X-Session-Key": "kept"}
data = json.dumps(body).encode() if body else None
request = urllib.request.Request(f"http://127.0.0.1:8420{path}", data, headers)
print(urllib.request.urlopen(request).read().decode())
""".replace("KEY", KEY)


class Container:
    """A container of the image with a volume and without a network. Requests are made inside it."""

    def __init__(self, image: str, name: str, folder: Path) -> None:
        self.image, self.name = image, name
        self.secret = folder / "api-key"
        self.secret.write_text(KEY + "\n")

    def start(self) -> None:
        secret = ("-v", f"{self.secret}:/run/secrets/api-key:ro", "-e", "HOLDFAST_API_KEY_FILE=/run/secrets/api-key")
        limits = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        model, volume = ("-e", "HOLDFAST_MODEL=scripted:echo"), ("-v", f"{self.name}:/data")
        podman(
            "run", "-d", "--name", self.name, *RUN, "--network", "none", *secret, *limits, *model, *volume, self.image
        )
        until(lambda: self.get("/health"))

    def get(self, path: str, **body: object) -> dict[str, object] | None:
        command = ["podman", "exec", "-i", self.name, "python3", "-c", ASK]
        done = subprocess.run(command, input=json.dumps([path, body]), capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def say(self, text: str) -> dict[str, object]:
        messages = [{"role": "user", "content": text}]
        return until(lambda: self.get("/v1/chat/completions", model="holdfast", messages=messages))["holdfast"]


def until(condition):
    limit = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < limit
        time.sleep(0.1)
    return found


@pytest.fixture
def container(image, tmp_path):
    found = Container(image, f"holdfast-test-{os.getpid()}", tmp_path)
    yield found
    podman("rm", "-f", "-t", "0", found.name)
    podman("volume", "rm", "-f", found.name)


def test_promise_1_a_session_survives_the_killed_container(container):
    container.start()
    first = container.say("one")
    podman("kill", "--signal", "KILL", container.name)
    podman("rm", "-f", container.name)
    container.start()
    second = container.say("two")

    assert second["session_id"] == first["session_id"]
    assert second["seq"] > first["seq"]
    podman("exec", container.name, "holdfast", "sessions", "verify")


def test_promise_3_stopping_the_container_drains_the_server(container):
    container.start()
    container.say("one")
    podman("stop", "-t", "60", container.name)

    state = json.loads(podman("inspect", container.name))[0]["State"]
    assert state["ExitCode"] == 0, "tini passed SIGTERM on, and nothing had to be killed"
    assert state["ExitCode"] != 128 + signal.SIGKILL
    podman("start", container.name)
    until(lambda: container.get("/health"))
    assert [one["message_count"] for one in container.get("/v1/sessions")["sessions"]] == [2]


def test_promise_24_the_image_runs_without_root_and_keeps_its_files_private(container):
    container.start()

    assert podman("exec", container.name, "id", "-u") == "10001"
    assert podman("exec", container.name, "stat", "-c", "%a %u", "/data", "/data/holdfast.db") == "700 10001\n600 10001"
    podman("healthcheck", "run", container.name)
    assert distribution("holdfast").version in podman("exec", container.name, "holdfast", "--version")
