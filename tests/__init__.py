"""The tests. Assertions in helpers are rewritten like those in the tests themselves."""

import sys
from pathlib import Path

# The programs that tests start do not import pytest: it would double the time they take to start.
if (pytest := sys.modules.get("pytest")) is not None:
    pytest.register_assert_rewrite(*(f"tests.{entry.stem}" for entry in Path(__file__).parent.iterdir()))
