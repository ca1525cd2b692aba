"""The sections of a run, in their order, and its sizes."""

from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec

from bench import (
    adapters,
    api_load,
    append,
    context,
    dashboard,
    engine_turns,
    growth,
    history,
    key_echo,
    large_store,
    liveness,
    memory,
    postgres,
    server_processes,
    startup,
    streams,
)
from bench.figures import Figure
from bench.peers import session_layers


class Size(msgspec.Struct, frozen=True):
    """How much is measured."""

    rounds: int
    load_rounds: int
    appends: int
    turns: int
    sessions: int
    lengths: tuple[int, ...] = (50, 1_000, 10_000, 100_000)


SIZES = {"small": Size(5, 3, 1_000, 600, 5_000), "full": Size(11, 5, 3_000, 2_000, 100_000)}


class Scope(msgspec.Struct, frozen=True):
    """What a section may use: a folder of its own, how much to measure, and whether to measure other systems too."""

    folder: Path
    size: Size
    with_peers: bool


Section = Callable[[Scope], Coroutine[None, None, list[Figure]]]


async def _api(scope: Scope) -> list[Figure]:
    size = scope.size
    return await api_load.measure(scope.folder, rounds=size.load_rounds, turns=size.turns, with_peers=scope.with_peers)


async def _processes(scope: Scope) -> list[Figure]:
    return await server_processes.measure(scope.folder, rounds=scope.size.load_rounds, turns=scope.size.turns)


async def _history(scope: Scope) -> list[Figure]:
    size = scope.size
    return await history.measure(scope.folder, lengths=size.lengths, rounds=size.rounds, with_peers=scope.with_peers)


async def _memory(scope: Scope) -> list[Figure]:
    return await memory.measure(scope.folder, with_peers=scope.with_peers)


async def _streams(scope: Scope) -> list[Figure]:
    return await streams.measure(scope.folder)


async def _append(scope: Scope) -> list[Figure]:
    return await append.measure(scope.folder, rounds=scope.size.rounds, appends=scope.size.appends)


async def _layers(scope: Scope) -> list[Figure]:
    if not scope.with_peers:
        return []
    return await session_layers.measure(scope.folder, rounds=scope.size.load_rounds, appends=scope.size.appends // 2)


async def _adapters(scope: Scope) -> list[Figure]:
    return await adapters.measure(scope.folder, rounds=scope.size.load_rounds, appends=scope.size.appends // 2)


async def _growth(scope: Scope) -> list[Figure]:
    return await growth.measure(scope.folder, rounds=scope.size.rounds, appends=scope.size.appends // 5)


async def _engine(scope: Scope) -> list[Figure]:
    return await engine_turns.measure(scope.folder, rounds=scope.size.rounds)


async def _context(scope: Scope) -> list[Figure]:
    return await context.measure(scope.folder, rounds=scope.size.rounds)


async def _store(scope: Scope) -> list[Figure]:
    return await large_store.measure(scope.folder, session_count=scope.size.sessions)


async def _start(scope: Scope) -> list[Figure]:
    return startup.measure(scope.folder)


async def _keys(scope: Scope) -> list[Figure]:
    return key_echo.measure(scope.folder, keys=100 * scope.size.rounds)


async def _dashboard(scope: Scope) -> list[Figure]:
    return await dashboard.measure(scope.folder, session_count=scope.size.sessions)


async def _live(scope: Scope) -> list[Figure]:
    counts = (10, 1_000, scope.size.sessions)
    return await liveness.measure(scope.folder, rounds=scope.size.rounds, counts=counts)


async def _postgres(scope: Scope) -> list[Figure]:
    return await postgres.measure(scope.folder, rounds=scope.size.rounds, appends=scope.size.appends)


SECTIONS: dict[str, Section] = {
    "api": _api,
    "processes": _processes,
    "history": _history,
    "memory": _memory,
    "streams": _streams,
    "layers": _layers,
    "append": _append,
    "adapters": _adapters,
    "growth": _growth,
    "engine": _engine,
    "context": _context,
    "store": _store,
    "start": _start,
    "keys": _keys,
    "live": _live,
    "postgres": _postgres,
    "dashboard": _dashboard,
}
