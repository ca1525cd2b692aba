"""Turns through the HTTP API of a server process whose model answers at once, beside direct calls to that model.

CPU time is that of the server process alone, the lowest of the rounds; times and rates are medians of the rounds. The load
driver, the model and the server share the machine.
"""

import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from bench import systems
from bench.figures import Figure, Goal, millis
from bench.load_driver import CHAT, Endpoint, Load, drive
from bench.peers import hermes
from bench.processes import cpu_seconds
from bench.systems import System

AT_ONCE = (1, 8, 32, 256)
PEER_TURNS = 24
"""Turns of a peer at each step: it needs hundreds of milliseconds for one."""
FORM_TURNS = 100
CPU_GOAL = Goal("≤", 2.5, " ms")
RATE_GOAL = Goal("≥", 500, " turns/s")
PEER_TIME_GOAL = Goal("≥", 60)
PEER_RATE_GOAL = Goal("≥", 50)


class Result(msgspec.Struct, frozen=True):
    """Seconds, and turns per second, of one system under one load."""

    cpu: float
    p50: float
    p99: float
    rate: float


async def measure(folder: Path, *, rounds: int, turns: int, with_peers: bool) -> list[Figure]:
    figures: list[Figure] = []
    async with _serving(folder, with_peers) as (direct, ours, peers):
        for system in (ours, *peers):
            drive(system.endpoint, "warm-up", sessions=2, turns=2)
        for count in AT_ONCE:
            played = [
                {one.name: _play(one, f"round-{number}", count, max(2, turns // count)) for one in (direct, ours)}
                for number in range(rounds)
            ]
            results = {name: _best([one[name] for one in played]) for name in played[0]}
            results |= {peer.name: _play(peer, "round", count, max(1, PEER_TURNS // count)) for peer in peers}
            figures += describe(count, results)
        figures += _forms(ours.endpoint, ours)
    return figures


@asynccontextmanager
async def _serving(folder: Path, with_peers: bool) -> AsyncIterator[tuple[System, System, list[System]]]:
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(systems.model())
        ours = await stack.enter_async_context(systems.holdfast(folder / "home", direct.endpoint.port))
        peers = [await stack.enter_async_context(hermes.serving(folder, direct.endpoint.port))] if with_peers else []
        yield direct, ours, peers


def _play(system: System, name: str, count: int, turns: int) -> Result:
    """So many turns of each of so many sessions."""
    before = cpu_seconds(system.process)
    load = drive(system.endpoint, f"{name}-{count}", sessions=count, turns=turns)
    return _result(load, cpu_seconds(system.process) - before)


def _result(load: Load, cpu: float) -> Result:
    return Result(cpu / len(load.turns), load.p50, load.p99, load.per_second)


def _best(rounds: list[Result]) -> Result:
    return Result(
        min(one.cpu for one in rounds),
        *(statistics.median(getattr(one, field) for one in rounds) for field in ("p50", "p99", "rate")),
    )


def describe(count: int, results: dict[str, Result]) -> list[Figure]:
    """The rows for so many sessions at once. `results` has those of `direct`, `Holdfast` and the peers."""
    direct, ours = results["direct"], results["Holdfast"]
    peers = {name: one for name, one in results.items() if name not in ("direct", "Holdfast")}
    sessions = f"{count} session{'s' if count > 1 else ''}"
    added = {name: _added(one, direct) for name, one in peers.items()}
    return [
        Figure(
            what=f"{sessions}: server CPU per turn",
            value=millis(ours.cpu),
            judged=ours.cpu * 1000,
            goal=CPU_GOAL if count == 1 else None,
            kind="cpu",
            others={name: millis(one.cpu) for name, one in peers.items()},
        ),
        Figure(
            what=f"{sessions}: time added to the model's, p50; p99",
            value=_added(ours, direct),
            others={"direct": f"{millis(direct.p50)}; {millis(direct.p99)}", **added},
        ),
        Figure(
            what=f"{sessions}: turns/s",
            value=f"{ours.rate:,.0f}",
            judged=ours.rate,
            goal=RATE_GOAL if count in (32, 256) else None,
            others={name: f"{one.rate:,.1f}" for name, one in results.items() if name != "Holdfast"},
        ),
        *(figure for name, one in peers.items() for figure in _against(sessions, count, ours, (name, one))),
    ]


def _added(system: Result, direct: Result) -> str:
    return f"{millis(system.p50 - direct.p50)}; {millis(system.p99 - direct.p99)}"


def _against(sessions: str, count: int, ours: Result, peer: tuple[str, Result]) -> list[Figure]:
    """How many times faster than a peer."""
    name, theirs = peer
    rows = (
        ("CPU", theirs.cpu / ours.cpu, None),
        ("p50", theirs.p50 / ours.p50, PEER_TIME_GOAL if count == 1 else None),
        ("turns/s", ours.rate / theirs.rate, PEER_RATE_GOAL if count == 8 else None),
    )
    return [
        Figure(
            what=f"{sessions}: {what}, better than {name} by",
            value=f"{times:,.0f} ×",
            judged=times,
            goal=goal or Goal("≥", 1),
            kind="ratio",
        )
        for what, times, goal in rows
    ]


def _forms(endpoint: Endpoint, ours: System) -> list[Figure]:
    """What the other forms of a request cost, one session at a time."""
    figures = []
    for path, stream in ((CHAT, False), ("/v1/responses", True), ("/v1/responses", False)):
        form = msgspec.structs.replace(endpoint, path=path, stream=stream)
        what = f"{path.removeprefix('/v1/')}, {'streamed' if stream else 'not streamed'}"
        before = cpu_seconds(ours.process)
        result = _result(
            drive(form, what.replace(" ", ""), sessions=1, turns=FORM_TURNS), cpu_seconds(ours.process) - before
        )
        figures.append(
            Figure(
                what=f"{what}: server CPU per turn",
                value=f"{millis(result.cpu)}, p50 {millis(result.p50)}",
                judged=result.cpu * 1000,
                kind="cpu",
            )
        )
    return figures
