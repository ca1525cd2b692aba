"""The memory that the processes of one server share."""

import struct

from holdfast.process_slots import HEADER, SLOT_BYTES, ProcessSlot, ProcessSlots


def test_a_process_reads_what_the_others_have_published() -> None:
    slots = ProcessSlots(3)
    ProcessSlot(slots, 1).publish(b"first")
    ProcessSlot(slots, 3).publish(b"third, once")
    ProcessSlot(slots, 3).publish(b"third")

    assert ProcessSlot(slots, 1).read_others() == {3: b"third"}
    assert ProcessSlot(slots, 2).read_others() == {1: b"first", 3: b"third"}


def test_a_half_written_text_is_not_read() -> None:
    slots = ProcessSlots(2)
    slots.publish(1, b"complete")
    struct.pack_into("=I", slots._memory, HEADER.size - 8, 5)

    assert slots.read(1) is None


def test_a_text_that_is_too_long_is_dropped() -> None:
    slots = ProcessSlots(2)
    slots.publish(1, b"x" * SLOT_BYTES)

    assert slots.read(1) is None
    assert slots.read(2) is None


def test_nothing_is_left_of_a_process_that_has_ended_but_the_count_of_its_replacements() -> None:
    slots = ProcessSlots(2)
    slots.publish(1, b"ended")
    slots.set_connections(1, 0, accepting=True)
    slots.clear(1, replaced=4)
    slots.publish(1, b"its replacement")
    slots.set_connections(1, 7, accepting=True)
    slots.set_connections(2, 9, accepting=True)

    assert slots.fewest_connections() == 7
    assert ProcessSlot(slots, 2).replacements() == {1: 4, 2: 0}
    assert slots.read(1) == b"its replacement"

    slots.clear(1, replaced=5)

    assert slots.read(1) is None
    assert slots.fewest_connections() == 9


def test_only_processes_that_accept_connections_are_compared() -> None:
    slots = ProcessSlots(2)
    one, other = ProcessSlot(slots, 1), ProcessSlot(slots, 2)
    one.set_connections(3)

    assert not one.has_more_than_others(3)

    other.set_connections(1)

    assert one.has_more_than_others(3)
    assert not other.has_more_than_others(1)

    other.set_connections(0, accepting=False)

    assert not one.has_more_than_others(3)
