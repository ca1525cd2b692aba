"""A store in a real PostgreSQL, and workers that are always ended with the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Talking, Worker
from tests.postgres.cluster import cluster
from tests.postgres.conftest import durable  # noqa: F401 - a server that can be killed, for these tests too

NewWorker = Callable[..., Worker]
NewLoad = Callable[..., Talking]


@pytest.fixture
def store() -> str:
    """The URL of an empty database."""
    return cluster().new_database()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def new_worker(stack: ExitStack, tmp_path: Path) -> NewWorker:
    """Starts a worker on a machine of that name."""

    def start(name: str, store: str, **more: Any) -> Worker:
        worker = Worker(tmp_path, name, store, **more)
        stack.callback(worker.close)
        return worker

    return start


@pytest.fixture
def new_load(stack: ExitStack) -> NewLoad:
    """Starts a load generator for these addresses."""

    def start(*urls: str, **more: Any) -> Talking:
        load = Talking(urls, **more)
        stack.callback(load.close)
        return load

    return start
