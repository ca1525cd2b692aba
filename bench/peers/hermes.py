"""hermes-agent's API server as a system under load, with its default durability and without its limit of ten turns at once."""

import asyncio
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from bench.load_driver import Endpoint
from bench.peers.environments import installed
from bench.processes import stop
from bench.systems import System

NAME = "hermes-agent"
TITLE = "hermes-agent 0.19.0"
KEY = "a-key-of-more-than-sixteen-characters"
START_SECONDS = 120.0
CONFIG = """
model:
  provider: custom
  default: m
  base_url: {url}/v1
  api_key: none
  context_length: 100000000
compression:
  enabled: false
gateway:
  api_server:
    max_concurrent_runs: 0
"""
PROGRAMS = Path(__file__).parent / "programs"


@asynccontextmanager
async def serving(folder: Path, model_port: int, histories: tuple[int, ...] = ()) -> AsyncIterator[System]:
    """Yield hermes-agent's API server. A session `behind-N` exists for each N in `histories`."""
    home, python = folder / "hermes", installed(NAME)
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG.format(url=f"http://127.0.0.1:{model_port}"))
    port = _free_port()
    environment = {
        **os.environ,
        "HERMES_HOME": str(home),
        "API_SERVER_ENABLED": "true",
        "API_SERVER_KEY": KEY,
        "API_SERVER_PORT": str(port),
    }
    if histories:
        fill = [str(PROGRAMS / "hermes_history.py"), json.dumps(histories)]
        await _finish(await asyncio.create_subprocess_exec(python, *fill, env=environment))
    command = [str(python.with_name("hermes")), "gateway", "run"]
    with (folder / "hermes.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=log, stderr=log, cwd=home)
    try:
        await _wait_until_ready(process, port, folder / "hermes.log")
        yield System(TITLE, psutil.Process(process.pid), _endpoint(port))
    finally:
        await stop(process)


def _endpoint(port: int) -> Endpoint:
    return Endpoint(port=port, key=KEY, session_header="x-hermes-session-id")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def _finish(process: asyncio.subprocess.Process) -> None:
    if await process.wait():
        raise RuntimeError("hermes-agent's store could not be filled")


async def _wait_until_ready(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.returncode is None and time.monotonic() < deadline:
        try:
            await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/health", timeout=5)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            await asyncio.sleep(0.2)
        else:
            return
    raise RuntimeError(f"hermes-agent did not start: {_tail(log)}")


def _tail(log: Path) -> str:
    return log.read_text()[-2000:]
