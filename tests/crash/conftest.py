from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.api.serving import Server
from tests.crash import reference, strace
from tests.crash.reference import Reference


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The fault-free run of a variant, made when it is first needed."""
    strace.need_strace()

    @cache
    def made(variant: str) -> Reference:
        return reference.make(variant, tmp_path_factory.mktemp(variant))

    return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    with Server(tmp_path / "home") as running:
        yield running
