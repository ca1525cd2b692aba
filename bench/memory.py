"""Memory of a server: idle, for each idle session, and for each session with a turn in progress."""

import asyncio
from pathlib import Path

import psutil

from bench import systems
from bench.figures import Figure, Goal
from bench.load_driver import drive
from bench.peers import hermes
from bench.processes import resident_bytes
from bench.systems import System

IDLE = 192
"""Sessions that are opened and then left alone: together with the earlier ones no more than a worker keeps in memory."""
BUSY = 256
TURNS = 2
WARM_UP_TURNS = 20
"""Enough to fill the caches that all sessions share, as those of SQLite."""
PEER_SESSIONS = 16
SAMPLE_SECONDS = 0.05
SERVER_GOAL = Goal("≤", 60, " MB")
SESSION_GOAL = Goal("≤", 15, " KB")
BUSY_GOAL = Goal("≤", 200, " KB")


async def measure(folder: Path, *, with_peers: bool) -> list[Figure]:
    async with systems.model() as direct:
        port = direct.endpoint.port
        async with systems.holdfast(folder / "home", port) as ours:
            idle, session = _idle(ours, 32, IDLE // 32)
            busy = await _busy(ours)
        others: list[dict[str, str]] = [{}, {}]
        if with_peers:
            async with hermes.serving(folder, port) as peer:
                theirs = _idle(peer, 2, PEER_SESSIONS // 2)
                others = [{peer.name: _mb(theirs[0])}, {peer.name: _kb(theirs[1])}]
    return [
        _figure("idle server", _mb(idle), idle / 2**20, SERVER_GOAL, others[0]),
        _figure(f"each of {IDLE} idle sessions", _kb(session), session / 1024, SESSION_GOAL, others[1]),
        _figure(f"each of {BUSY} sessions with a turn in progress, at most", _kb(busy), busy / 1024, BUSY_GOAL, {}),
    ]


def _figure(what: str, value: str, judged: float, goal: Goal, others: dict[str, str]) -> Figure:
    return Figure(what=f"memory: {what}", value=value, judged=judged, goal=goal, kind="memory", others=others)


def _idle(system: System, at_once: int, rounds: int) -> tuple[int, float]:
    """Resident memory of the fresh server, and how much each further session adds."""
    fresh = resident_bytes(system.process)
    drive(system.endpoint, "warm-up", sessions=at_once, turns=WARM_UP_TURNS)
    before = resident_bytes(system.process)
    drive(system.endpoint, "idle", sessions=at_once, turns=TURNS * rounds, in_session=TURNS)
    return fresh, (resident_bytes(system.process) - before) / (at_once * rounds)


async def _busy(system: System) -> float:
    """How much each session adds while all have a turn in progress."""
    before = resident_bytes(system.process)
    sampling = asyncio.create_task(_highest(system.process))
    await asyncio.to_thread(drive, system.endpoint, "busy", sessions=BUSY, turns=TURNS)
    sampling.cancel()
    return max(0, await sampling - before) / BUSY


async def _highest(process: psutil.Process) -> int:
    """The most memory seen until it is cancelled."""
    most = 0
    try:
        while True:
            most = max(most, resident_bytes(process))
            await asyncio.sleep(SAMPLE_SECONDS)
    except asyncio.CancelledError:
        return most


def _mb(size: float) -> str:
    return f"{size / 2**20:,.0f} MB"


def _kb(size: float) -> str:
    return f"{size / 1024:,.1f} KB"
