"""A server shared by the tests of a module, and one whose model records its requests."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.api.serving import Server, recording_vendor


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("api") / "home") as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    with Server(tmp_path / "home") as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with server.openai() as opened:
        yield opened


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


@pytest.fixture
def vendor(record: Path) -> Iterator[str]:
    """The address of a model server that records its requests."""
    with recording_vendor(record) as url:
        yield url


@pytest.fixture
def upstream(tmp_path: Path, vendor: str) -> Iterator[Server]:
    """A server whose model is reached over HTTP."""
    with Server(tmp_path / "home", vendor=vendor) as server:
        yield server
