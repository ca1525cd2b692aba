"""`python -m bench`: run the benchmarks, print them as tables with their goals, keep them as JSON, compare them with a baseline."""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console

from bench import compare, machine, report
from bench.figures import Figure
from bench.sections import SECTIONS, SIZES, Scope

WIDTH = 150
BUSY = 0.5
"""A load average above which the machine counts as busy."""


def main() -> int:
    # A terminated run removes its folder and ends its servers, as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parse_options(sys.argv[1:])
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    load, here = os.getloadavg()[0], machine.describe(options.folder)
    console.print(f"{here}; load {load:.1f}; size {options.size}. Medians of the rounds, ratios within a round.")
    if load > BUSY:
        console.print("[yellow]The machine is busy: the figures are preliminary.[/]")
    found = report.Report(here, options.size, load, {})
    for name in options.only or SECTIONS:
        found.sections[name] = _run(console, name, options)
        if options.json:
            report.save(found, options.json)  # after every section: a later one may fail
    console.print(f"Goals missed: {found.missed}. A busy machine moves all figures but ratios and sizes.")
    return _compare(console, options.baseline, found) if options.baseline else 0


def parse_options(words: list[str]) -> argparse.Namespace:
    """The options, with the report to compare with as `baseline`. What would fail after the run ends the program here."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small", help="full: more rounds and larger stores")
    parser.add_argument(
        "--peers", action="store_true", help="install other systems in build/peers and measure them too"
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section only; may be repeated")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where the stores are made: on a real disk")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save the figures as JSON")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with saved figures; 1 if some are worse")
    options = parser.parse_args(words)
    if options.json and options.json.is_dir():
        parser.error(f"--json {options.json} is a directory")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        options.baseline = report.load(options.compare) if options.compare else None
    except OSError as e:
        parser.error(f"{e.filename}: {e.strerror}")
    except msgspec.MsgspecError as e:
        parser.error(f"--compare {options.compare} is no report of this program: {e}")
    if options.baseline and options.baseline.size != options.size:
        parser.error(f"--compare {options.compare} has size {options.baseline.size}, this run {options.size}")
    return options


def _run(console: Console, name: str, options: argparse.Namespace) -> list[Figure]:
    """Run one section in a new folder, which is removed afterwards."""
    start = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=options.folder)).absolute()
    try:
        figures = asyncio.run(SECTIONS[name](Scope(folder, SIZES[options.size], options.peers)))
    finally:
        shutil.rmtree(folder)
    if figures:
        console.print(report.table(f"{name}, {time.perf_counter() - start:.0f} s", figures))
    return figures


def _compare(console: Console, baseline: report.Report, found: report.Report) -> int:
    """Print the changes; 1 if something got worse."""
    changes = compare.compare(baseline, found)
    regressions = sum(change.is_regression for change in changes)
    console.print(compare.table(changes))
    if baseline.machine != found.machine:
        console.print(f"[yellow]The baseline is of another machine: {baseline.machine}[/]")
    console.print(f"{len(changes)} figures compared, {regressions} worse by more than {compare.TOLERANCE:.0%}.")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main())
