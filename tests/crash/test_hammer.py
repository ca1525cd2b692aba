"""Several real processes write to one file at once, and some of them are killed."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.event import UserSaid
from holdfast.model.ids import SESSION, Ids
from holdfast.model.message import text_of
from tests.crash import effort
from tests.crash.check import Logs, verify
from tests.crash.hammer import TASKS
from tests.crash.programs import LIMIT_SECONDS, Process, program
from tests.crash.say import Line, places
from tests.crash.writer import DATABASE
from tests.fakes.clock import FakeClock

pytestmark = [pytest.mark.crash, pytest.mark.timeout(effort.limit(8))]

SHARED = [Ids(FakeClock(n).now).make(SESSION) for n in (1, 2)]
FOR_EVER = 10_000
"""Seconds: until they are told to stop."""


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_that_hammer_one_file_lose_double_and_reorder_nothing(processes: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        hammers = [
            stack.enter_context(program("hammer", tmp_path, "--seconds", effort.SECONDS, "--shared", *SHARED))
            for _ in range(processes)
        ]
        codes = [hammer.wait(effort.SECONDS + LIMIT_SECONDS) for hammer in hammers]
        said = [hammer.lines() for hammer in hammers]
        complaints = "".join(hammer.complaints for hammer in hammers)

    logs, _ = verify(tmp_path / DATABASE, places(line for lines in said for line in lines))
    assert (codes, complaints) == ([0] * processes, "")
    assert_nothing_lost_doubled_or_reordered(logs, said, under_way=0)
    assert min(len(writers(logs[session])) for session in SHARED) > 1, "nobody contended for it"


def test_a_storm_of_kills_loses_nothing_and_the_dead_write_nothing(tmp_path: Path) -> None:
    chance = random.Random(effort.KILLS)
    with ExitStack() as stack:

        def start(*options: object) -> Process:
            return stack.enter_context(
                program("hammer", tmp_path, "--seconds", FOR_EVER, "--shared", *SHARED, *options)
            )

        alive = [start() for _ in range(8)]
        dead: list[Process] = []
        for _ in range(effort.KILLS):
            victim = alive.pop(chance.randrange(len(alive)))
            assert victim.wait_for_words('"ack"', times=chance.randrange(1, 40)), victim.complaints
            victim.kill()
            dead.append(victim)
            alive.append(start(*in_place_of(victim)))
        for hammer in alive:
            assert hammer.wait_for_words('"ack"'), hammer.complaints
            hammer.tell("stop")
        codes = [hammer.wait() for hammer in alive]
        said = [hammer.lines() for hammer in (*alive, *dead)]
        complaints = "".join(hammer.complaints for hammer in (*alive, *dead))

    logs, _ = verify(tmp_path / DATABASE, places(line for lines in said for line in lines))
    late = Counter(line["late"] for lines in said for line in lines if "late" in line)
    assert (codes, complaints) == ([0] * 8, "")
    assert late.keys() == {"refused"}
    assert late.total() >= effort.KILLS
    assert_nothing_lost_doubled_or_reordered(logs, said, under_way=TASKS * len(dead))


def in_place_of(victim: Process) -> Sequence[object]:
    """Whom to bury, and the last lease it is known to have had of each session."""
    lines = victim.lines()
    [worker] = [line["worker"] for line in lines if "worker" in line]
    held = {lease[0]: ":".join(map(str, lease)) for line in lines if isinstance(lease := line.get("held"), list)}
    return "--bury", worker, "--held", *held.values()


def assert_nothing_lost_doubled_or_reordered(logs: Logs, said: Iterable[list[Line]], *, under_way: int) -> None:
    """Each worker's messages are in each log once and in its order, and hardly more than it acknowledged."""
    stored = 0
    for entries in logs.values():
        words = [text_of(entry.event.parts) for entry in entries if isinstance(entry.event, UserSaid)]
        stored += len(words)
        for worker in {word.split()[0] for word in words}:
            numbers = [int(word.split()[1]) for word in words if word.split()[0] == worker]
            assert numbers == list(range(1, len(numbers) + 1)), f"{worker} wrote otherwise"
    acknowledged = sum(len(places(lines)) for lines in said)
    assert acknowledged <= stored <= acknowledged + under_way


def writers(entries: Iterable[object]) -> set[str]:
    return {entry.event.turn_id for entry in entries if isinstance(entry.event, UserSaid)}  # type: ignore[attr-defined]
