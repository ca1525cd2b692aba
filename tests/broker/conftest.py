"""Brokers for the tests: a shared one, and separate ones for tests that change or kill it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.brokers import Brokers

NewBroker = Callable[..., Brokers]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("broker"), "ada", "bo", requests=4) as found:
        yield found


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[NewBroker]:
    with ExitStack() as stack:
        yield lambda *users, **settings: stack.enter_context(Brokers(tmp_path / "h", *users, **settings))
