"""A real Matrix homeserver on loopback, and clients of it."""

import asyncio
import contextlib
import fcntl
import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
from nio import AsyncClient, AsyncClientConfig, RoomMessageText, SyncResponse

NAME = "matrix.test"
CONFIG = """
server_name: {name}
pid_file: {folder}/homeserver.pid
report_stats: false
bcrypt_rounds: 4
signing_key_path: {folder}/signing.key
media_store_path: {folder}/media
macaroon_secret_key: {secret}
form_secret: {secret}
registration_shared_secret: {secret}
enable_registration: true
enable_registration_without_verification: true
suppress_key_server_warning: true
trusted_key_servers: []
log_config: {folder}/log.yaml
database:
  name: sqlite3
  args:
    database: {folder}/homeserver.db
listeners:
  - port: {port}
    type: http
    bind_addresses: [127.0.0.1]
    resources:
      - names: [client]
rc_message: {fast}
rc_registration: {fast}
rc_login: {{address: {fast}, account: {fast}, failed_attempts: {fast}}}
rc_joins: {{local: {fast}, remote: {fast}}}
rc_invites: {{per_room: {fast}, per_user: {fast}, per_issuer: {fast}}}
rc_room_creation: {fast}
"""
LOG = """
version: 1
formatters: {plain: {format: '%(levelname)s %(name)s %(message)s'}}
handlers: {file: {class: logging.FileHandler, filename: FOLDER/synapse.log, formatter: plain}}
root: {level: WARNING, handlers: [file]}
disable_existing_loggers: false
"""
STARTS_SECONDS = 120
STARTED: list[subprocess.Popen[bytes]] = []
"""Kept, so that Python does not warn about an unawaited process: another worker may still use it."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def shared(folder: Path) -> str:
    """The URL of the homeserver that all workers of a test run share. The first caller starts it; `stop_shared` ends it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    known = folder / "server.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            server, url = _start(folder)
            STARTED.append(server)
            created = psutil.Process(server.pid).create_time()
            known.write_text(json.dumps({"pid": server.pid, "created": created, "url": url}))
        return str(json.loads(known.read_text())["url"])


def stop_shared(folder: Path) -> None:
    """End the homeserver of this test run."""
    found = json.loads((folder / "server.json").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        server = psutil.Process(found["pid"])
        if server.create_time() == found["created"]:
            server.terminate()
            server.wait(20)


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a homeserver in an empty folder; return it and its URL."""
    port = free_port()
    fast = "{per_second: 10000, burst_count: 10000}"
    (folder / "log.yaml").write_text(LOG.replace("FOLDER", str(folder)))
    text = CONFIG.format(name=NAME, folder=folder, port=port, secret=secrets.token_hex(16), fast=fast)
    (folder / "homeserver.yaml").write_text(text)
    command = [sys.executable, "-m", "synapse.app.homeserver", "-c", str(folder / "homeserver.yaml")]
    subprocess.run([*command, "--generate-keys"], check=True, capture_output=True, cwd=folder)
    with (folder / "output").open("wb") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        _wait(f"http://127.0.0.1:{port}/_matrix/client/versions", server, folder / "output")
    except BaseException:
        server.kill()
        server.wait()
        raise
    return server, f"http://127.0.0.1:{port}"


def _wait(url: str, server: subprocess.Popen[bytes], output: Path) -> None:
    until = time.monotonic() + STARTS_SECONDS
    while time.monotonic() < until:
        assert server.poll() is None, output.read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"the homeserver did not start: {output.read_text()}")


async def register(homeserver: str, name: str) -> tuple[str, str]:
    """Register an account; return its id and token."""
    client = AsyncClient(homeserver, name)
    try:
        answer = await client.register(name, f"password of {name}")
        return answer.user_id, answer.access_token
    finally:
        await client.close()


class Person:
    """A Matrix client that sends messages and records the ones it receives."""

    def __init__(self, homeserver: str, user: str, token: str) -> None:
        self.client = AsyncClient(homeserver, user, config=AsyncClientConfig(request_timeout=60))
        self.client.access_token = token
        self.client.user_id = user
        self.heard: dict[str, list[str]] = {}
        """The messages of others by room, without edits."""
        self.originals: list[str] = []
        self._since: str | None = None

    async def invite(self, other: str) -> str:
        answer = await self.client.room_create(invite=[other], is_direct=True)
        return str(answer.room_id)

    async def say(self, room_id: str, text: str) -> str:
        answer = await self.client.room_send(room_id, "m.room.message", {"msgtype": "m.text", "body": text})
        return str(answer.event_id)

    async def listen(self, seconds: float) -> None:
        """Sync once."""
        filters = {"room": {"timeline": {"limit": 1000}}}
        answer = await self.client.sync(timeout=int(seconds * 1000), since=self._since, sync_filter=filters)
        assert isinstance(answer, SyncResponse), answer
        self._since = answer.next_batch
        for room_id, room in answer.rooms.join.items():
            assert not room.timeline.limited or self._since is None or len(room.timeline.events) < 1000
            for event in room.timeline.events:
                relates = event.source.get("content", {}).get("m.relates_to") or {}
                edit = relates.get("rel_type") == "m.replace"
                if isinstance(event, RoomMessageText) and event.sender != self.client.user_id and not edit:
                    self.heard.setdefault(room_id, []).append(event.body)

    async def joined(self, room_id: str, count: int) -> None:
        """Wait until the room has that many members."""
        async with asyncio.timeout(30):
            while len((await self.client.joined_members(room_id)).members) < count:
                await self.listen(1)

    async def close(self) -> None:
        await self.client.close()
