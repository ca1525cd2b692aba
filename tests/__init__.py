"""The tests. What their helpers assert is explained like what the tests themselves assert."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(*(f"tests.{entry.stem}" for entry in Path(__file__).parent.iterdir()))
