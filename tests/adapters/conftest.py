"""A home and a store for adapters, closed after the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.adapters.shared_store import close_stores
from tests.contract.store_urls import KINDS, new_place


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store in a home of its own."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    yield f"sqlite:///{tmp_path / 'holdfast.db'}"
    close_stores()


@pytest.fixture(params=KINDS)
def each_url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URLs of an SQLite and a PostgreSQL store."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    yield new_place(request.param, tmp_path)
    close_stores()
