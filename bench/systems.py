"""The systems under load: the model server called directly, and Holdfast in front of it."""

import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from bench.load_driver import Endpoint
from bench.processes import started

KEY = "hfk-for-the-benchmark"
CONFIG = """
model = "openai:m"
[context]
window = 1000000000
[api]
key = "{key}"
[models.openai]
api_key = "sk-for-the-benchmark"
base_url = "{url}/v1"
"""


class System(msgspec.Struct, frozen=True):
    """A server process and how to send it turns."""

    name: str
    process: psutil.Process
    endpoint: Endpoint


def ask_model(port: int, question: Literal["received", "streams"]) -> int:
    """Ask the model server for one of its counters."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{question}") as answer:
        return int(answer.read())


@asynccontextmanager
async def model(*, words: int | None = None, per_second: float = 0.0) -> AsyncIterator[System]:
    """Yield the model server; with `per_second` it sends that many words a second, else all at once."""
    options = ["--per-second", str(per_second), *(["--words", str(words)] if words else [])]
    async with started("-m", "bench.model_server", *options) as (process, port):
        yield System("direct", process, Endpoint(port=port))


@asynccontextmanager
async def holdfast(home: Path, model_port: int, *, processes: int = 1) -> AsyncIterator[System]:
    """Yield `holdfast serve` with its default settings, but for the size of the context window."""
    _configure(home, model_port)
    command = ("-m", "holdfast", "--home", str(home), "serve", "--port", "0", "--processes", str(processes))
    async with started(*command) as (process, port):
        yield System("Holdfast", process, Endpoint(port=port, key=KEY))


def _configure(home: Path, model_port: int) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    config = home / "config.toml"
    config.write_text(CONFIG.format(key=KEY, url=f"http://127.0.0.1:{model_port}"))
    config.chmod(0o600)
