"""A real OpenSSH server on the loopback interface, with its own keys."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.settings import SshSettings
from tests.crash.programs import wait_until

SEPARATION = Path("/run/sshd")
"""The directory that Debian's server needs when it is started by root."""


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshSettings]:
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "sshd is missing: scripts/system-packages installs it"
    folder.mkdir(mode=0o700, parents=True)
    if os.geteuid() == 0:
        SEPARATION.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": folder / "pid",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "UsePAM": "no",
        "PermitRootLogin": "prohibit-password",
    }
    words = [program, "-D", "-e", "-f", "/dev/null", *(f"-o{name}={value}" for name, value in options.items())]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    with (folder / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as server:
        try:
            wait_until(lambda: _answers(port) or server.poll() is not None, "sshd listens")
            assert server.poll() is None, (folder / "log").read_text()
            yield SshSettings(
                host="127.0.0.1",
                port=port,
                user=getpass.getuser(),
                identity_file=str(folder / "user"),
                known_hosts=str(folder / "known"),
                workdir=str(folder / "there"),
            )
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
