"""One server for the tests of a module that only talk to it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.api.serving import Server


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
