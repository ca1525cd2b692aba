import json
import re
import urllib.parse
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.ids import ALPHABET, SESSION, TURN, WORKER, Ids, derive, looks_like_session
from holdfast.model.times import DAY, SECOND
from tests.fakes.clock import FakeClock


def test_ids_of_one_generator_increase_within_one_microsecond(clock: FakeClock) -> None:
    ids = Ids(clock.now)
    made = [ids.make(SESSION) for _ in range(1_000)]

    assert all(earlier < later for earlier, later in pairwise(made))


@given(st.lists(st.integers(-3 * DAY, 3 * DAY), max_size=50))
def test_ids_increase_whatever_the_clock_does(jumps: list[int]) -> None:
    clock = FakeClock()
    ids = Ids(clock.now)
    made = []
    for jump in jumps:
        clock.set_by(jump / SECOND)
        made.append(ids.make(SESSION))

    assert made == sorted(set(made))


@given(st.integers(0, 2**45 - 2), st.integers(1, 1_000), st.integers(0, 2**55 - 1), st.integers(0, 2**55 - 1))
def test_ids_of_two_generators_sort_by_their_milliseconds(millis: int, later: int, first: int, second: int) -> None:
    earlier = Ids(lambda: millis * 1_000, lambda bits: first).make(SESSION)
    after = Ids(lambda: min(millis + later, 2**45 - 1) * 1_000, lambda bits: second).make(SESSION)

    assert earlier < after


def test_two_generators_with_the_same_clock_do_not_collide(clock: FakeClock) -> None:
    one, two = Ids(clock.now), Ids(clock.now)

    assert not {one.make(SESSION) for _ in range(500)} & {two.make(SESSION) for _ in range(500)}


def test_an_id_with_the_highest_random_part_still_increases(clock: FakeClock) -> None:
    ids = Ids(clock.now, lambda bits: 2**bits - 1)

    assert ids.make(SESSION) < ids.make(SESSION) < ids.make(SESSION)


@pytest.mark.parametrize("prefix", [SESSION, TURN, WORKER])
def test_an_id_needs_no_quoting_anywhere(clock: FakeClock, prefix: str) -> None:
    made = Ids(clock.now).make(prefix)

    assert re.fullmatch(rf"{prefix}[{ALPHABET}]{{20}}", made)
    assert urllib.parse.quote(made, safe="") == made
    assert json.dumps(made) == f'"{made}"'
    assert made == made.lower(), "file systems that ignore case keep ids apart"


def test_the_format_of_an_id_does_not_change() -> None:
    ids = Ids(lambda: 1_800_000_000 * SECOND, lambda bits: 1)

    assert ids.make(SESSION) == "hf-1mcc5rm0000000000001"


@pytest.mark.parametrize(
    ("ref", "looks"),
    [
        ("hf-0123456789abcdefghjk", True),
        ("hf-0123456789abcdefghj", False),
        ("hf-0123456789abcdefghjkm", False),
        ("hf-0123456789abcdefghjl", False),
        ("HF-0123456789abcdefghjk", False),
        ("0123456789abcdefghjk", False),
        ("hf-hf-456789abcdefghjk", False),
        ("", False),
        ("my own name", False),
    ],
)
def test_only_session_ids_look_like_session_ids(ref: str, looks: bool) -> None:
    assert looks_like_session(ref) == looks


def test_a_generated_id_looks_like_a_session_id(clock: FakeClock) -> None:
    assert looks_like_session(Ids(clock.now).make(SESSION))
    assert not looks_like_session(Ids(clock.now).make(TURN))


def test_an_id_derived_from_a_name_is_always_the_same_and_sorts_by_time() -> None:
    early, late = derive(SESSION, 1_700_000_000_000_000, "codex:x"), derive(SESSION, 1_700_000_001_000_000, "codex:a")

    assert looks_like_session(early) and early < late
    assert derive(SESSION, 1_700_000_000_000_000, "codex:x") == early
    assert derive(SESSION, 1_700_000_000_000_000, "codex:y") != early
    assert looks_like_session(derive(SESSION, -5, "\ud800"))
