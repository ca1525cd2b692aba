"""The garbage collector while a command starts, after that, and when it ends."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.cli import garbage_collection


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_a_start_is_not_interrupted_and_later_garbage_is_collected() -> None:
    garbage_collection.postpone()
    assert gc.get_threshold()[0] == garbage_collection.STARTING_OBJECTS
    assert gc.isenabled()

    garbage_collection.resume()
    assert gc.get_threshold() == garbage_collection.RUNNING_THRESHOLDS
    assert gc.get_freeze_count() > 0


def test_nothing_is_left_to_look_at_when_a_command_ends() -> None:
    garbage_collection.skip_last()

    assert gc.get_freeze_count() > 0
    assert sum(gc.get_count()) < garbage_collection.STARTING_OBJECTS
