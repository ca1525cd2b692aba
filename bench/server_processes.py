"""`serve --processes`: turns through one process and through two, in the same rounds."""

import itertools
from contextlib import AsyncExitStack
from pathlib import Path

from bench import systems
from bench.figures import Contestant, Figure, Round, alternate, median, millis, ratio
from bench.load_driver import drive
from bench.processes import cpu_seconds
from bench.systems import System

AT_ONCE = (32, 256)
PROCESSES = (1, 2)


async def measure(folder: Path, *, rounds: int, turns: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(systems.model())
        servers = {
            count: await stack.enter_async_context(
                systems.holdfast(folder / f"home-{count}", model.endpoint.port, processes=count)
            )
            for count in PROCESSES
        }
        return [figure for sessions in AT_ONCE for figure in await _compare(servers, sessions, rounds, turns)]


async def _compare(servers: dict[int, System], sessions: int, rounds: int, turns: int) -> list[Figure]:
    cpu: dict[str, list[float]] = {_name(count): [] for count in servers}
    contestants = {
        _name(count): _player(server, sessions, max(3, turns // sessions), cpu[_name(count)])
        for count, server in servers.items()
    }
    rates = await alternate(contestants, rounds)
    return [_describe(sessions, name, rates, cpu[name]) for name in contestants]


def _name(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _player(server: System, sessions: int, turns: int, cpu: list[float]) -> Contestant:
    numbers = itertools.count()

    async def play() -> float:
        before = cpu_seconds(server.process)
        load = drive(server.endpoint, f"{sessions}-{next(numbers)}", sessions=sessions, turns=turns)
        cpu.append((cpu_seconds(server.process) - before) / len(load.turns))
        return load.per_second

    return play


def _describe(sessions: int, name: str, rates: list[Round], cpu: list[float]) -> Figure:
    one = _name(1)
    return Figure(
        what=f"{sessions} sessions, {name}: turns/s; server CPU per turn",
        value=f"{median(rates, name):,.0f}; {millis(min(cpu))}",
        beside="" if name == one else one,
        judged=None if name == one else ratio(rates, name, one),
    )
