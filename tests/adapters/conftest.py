"""A home and a store for adapters, closed after the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.shared_store import close_stores


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store in a home of its own."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    yield f"sqlite:///{tmp_path / 'holdfast.db'}"
    close_stores()
