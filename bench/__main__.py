"""`python -m bench`: run the benchmarks and print them as a table, with the goals beside the figures."""

import argparse
import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import apsw
import msgspec
from rich.console import Console
from rich.table import Table

from bench import api, appending, context, dashboard, growing, library, liveness, postgres, starting, turns
from bench.figures import Figure


class Size(msgspec.Struct, frozen=True):
    rounds: int
    appends: int
    sessions: int


SIZES = {"small": Size(5, 1_000, 5_000), "full": Size(11, 3_000, 100_000)}
Section = Callable[[Path, Size, argparse.Namespace], Coroutine[None, None, list[Figure]]]


async def _append(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await appending.measure(folder, rounds=size.rounds, appends=size.appends, with_peers=options.peers)


async def _grow(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await growing.measure(folder, rounds=size.rounds, appends=size.appends // 5)


async def _library(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await library.measure(folder, session_count=size.sessions)


async def _start(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return starting.measure(folder)


async def _turn(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await turns.measure(folder, rounds=size.rounds)


async def _context(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await context.measure(folder, rounds=size.rounds)


async def _api(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await api.measure(folder, turns=size.appends)


async def _dashboard(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await dashboard.measure(folder, session_count=size.sessions)


async def _live(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await liveness.measure(folder, rounds=size.rounds, counts=(10, 1_000, size.sessions))


async def _postgres(folder: Path, size: Size, options: argparse.Namespace) -> list[Figure]:
    return await postgres.measure(folder, rounds=size.rounds, appends=size.appends)


SECTIONS: dict[str, Section] = {
    "append": _append,
    "grow": _grow,
    "turn": _turn,
    "context": _context,
    "api": _api,
    "dashboard": _dashboard,
    "live": _live,
    "postgres": _postgres,
    "library": _library,
    "start": _start,
}


def main() -> None:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 130)
    _introduce(console, options)
    missed = 0
    for name in options.only or SECTIONS:
        start = time.perf_counter()
        folder = Path(tempfile.mkdtemp(prefix="bench-", dir=options.folder))
        try:
            figures = asyncio.run(SECTIONS[name](folder, SIZES[options.size], options))
        finally:
            shutil.rmtree(folder)
        console.print(_table(f"{name}, {time.perf_counter() - start:.0f} s", figures))
        missed += sum(figure.met is False for figure in figures)
    console.print(f"Goals missed: {missed}. A goal is a ratio or a size; a busy machine moves the rest.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small", help="small: a minute or two; full: a coffee or two")
    parser.add_argument("--peers", action="store_true", help="also measure other session layers that are installed")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section only; may be repeated")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where the stores are made: on a real disk")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


def _introduce(console: Console, options: argparse.Namespace) -> None:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    console.print(
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {os.cpu_count()} cores, "
        f"load {load}, {sys.platform}, size {options.size}. Messages of 1 KB; medians of the rounds, ratios within a round."
    )


def _table(title: str, figures: list[Figure]) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    for column in ("what", "figure", "beside", "goal", ""):
        table.add_column(column, justify="right" if column in {"figure", "goal"} else "left")
    for figure in figures:
        table.add_row(figure.what, figure.value, _beside(figure), str(figure.goal or ""), _verdict(figure))
    return table


def _beside(figure: Figure) -> str:
    if figure.judged is None or not figure.beside:
        return figure.beside
    return f"{figure.judged:,.2f} × {figure.beside}"


def _verdict(figure: Figure) -> str:
    return {True: "[green]ok[/]", False: "[red]miss[/]", None: ""}[figure.met]


if __name__ == "__main__":
    main()
