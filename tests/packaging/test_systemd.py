"""`holdfast serve --install` with the service manager of a user, in a container that systemd starts."""

import os
import time

import pytest

from tests.packaging.podman import RUN, build, podman
from tests.packaging.wheelhouse import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(900)]
DOCKERFILE = """
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap dbus-user-session libpam-systemd procps systemd-sysv
RUN useradd --create-home user && mkdir -p /var/lib/systemd/linger && touch /var/lib/systemd/linger/user
CMD ["/sbin/init"]
"""
ENVIRONMENT = {
    "HOME": "/home/user",
    "PATH": "/home/user/.local/bin:/usr/bin:/bin",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/wheels",
}
UNIT = "holdfast.service"
CHAT = ("holdfast", "run", "--key", "kept", "--model", "scripted:tools")


@pytest.fixture
def machine(tmp_path, wheels, debian):
    """Runs commands as a user of the container."""
    (tmp_path / "Dockerfile").write_text(DOCKERFILE.format(base=debian))
    image, name = build("systemd", tmp_path), f"holdfast-systemd-{os.getpid()}"
    mounts = ("-v", f"{wheels.folder}:/wheels:ro", "-v", f"{ROOT}/install.sh:/install.sh:ro")
    podman("run", "-d", "--name", name, *RUN, "--systemd=always", "--network", "none", *mounts, image)
    variables = [word for item in ENVIRONMENT.items() for word in ("-e", "=".join(item))]
    try:
        yield lambda *words: podman("exec", "-u", "user", "-w", "/home/user", *variables, name, *words)
    finally:
        podman("rm", "-f", "-t", "0", name)
        podman("rmi", "-f", image)


def until(condition):
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.2)


def test_promise_13_the_service_restarts_after_a_kill_and_keeps_background_processes(machine, wheels):
    def state(name):
        return machine("systemctl", "--user", "show", "--property", name, "--value", UNIT)

    def is_serving():
        return '"kind": "serve"' in machine("holdfast", "workers", "--json").replace('":"', '": "')

    until(lambda: machine("sh", "-c", "systemctl --user is-system-running || true") in ("running", "degraded"))
    machine("sh", "/install.sh", "--from", f"/wheels/{wheels.own.name}", "--extras", "none")
    assert "The service runs." in machine("holdfast", "serve", "--install")
    until(is_serving)
    first = state("MainPID")
    assert "Unchanged:" in machine("holdfast", "serve", "--install")
    assert state("MainPID") == first, "installing it again does not restart it"
    assert "/usr/bin/bwrap" in machine("holdfast", "doctor"), "the sandbox works"
    machine(*CHAT, 'use tool terminal {"command": "sleep 1000", "background": true}')

    machine("kill", "-9", first)
    until(lambda: state("MainPID") not in ("0", first) and is_serving())
    machine("systemctl", "--user", "restart", UNIT)
    assert "You said: hello" in machine(*CHAT, "hello")
    assert "sleep 1000" in machine("holdfast", "ps"), "its process survived a kill and a restart of the server"

    assert "Removed" in machine("holdfast", "serve", "--uninstall")
    assert machine("sh", "-c", f"systemctl --user is-active {UNIT} || true") == "inactive"
    machine("pgrep", "-f", "sleep 1000")
