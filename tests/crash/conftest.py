from collections.abc import Callable
from functools import cache

import pytest

from tests.crash import reference, traced
from tests.crash.reference import Reference


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The clean run of a variant, made when it is first asked for."""
    traced.need_strace()

    @cache
    def made(variant: str) -> Reference:
        return reference.make(variant, tmp_path_factory.mktemp(variant))

    return made
