"""`holdfast torture`: run the crash tests on this machine and kind of store."""

import asyncio
import secrets
from pathlib import Path

import click
import msgspec

from holdfast.cli import context, errors, render, signals
from holdfast.cli.progress import Spinner
from holdfast.clock import SystemClock
from holdfast.model.errors import NotFound
from holdfast.model.sanitize import visible
from holdfast.torture.result import TrialResult
from holdfast.torture.scratch_store import ScratchStores, scratch_stores
from holdfast.torture.torture import ROUNDS, TRIALS, run_trial
from holdfast.wiring.store import resolve_store_url

COLUMNS = ["trial", "tried", "lost", "doubled", "leaked", "seconds", ""]


@click.command("torture")
@click.option(
    "--store",
    metavar="URL",
    help="Create the test store next to this one: sqlite:///path or postgresql://… [the configured store]",
)
@click.option("--seed", type=click.IntRange(min=0), help="Repeat the run with this seed. [random]")
@click.option(
    "--rounds",
    type=click.IntRange(min=1, max=100_000),
    default=ROUNDS,
    help=f"Run this many rounds of each trial. [{ROUNDS}]",
)
@context.json_option
def torture_(*, store: str | None, seed: int | None, rounds: int, as_json: bool) -> int:
    """Run the crash tests on this machine.

    Kills processes while they write to a test store next to yours, and reports lost or duplicated data.
    Your own store is neither read nor written.
    """
    url = resolve_store_url(context.settings(), store)
    _require_directory(store, url)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    results: list[TrialResult] = []
    with scratch_stores(url) as stores:
        if not as_json:
            render.print_text(
                visible(f"Testing in {stores.where} (removed afterwards); your store is not touched. Seed: {seed}")
            )
            render.flush()
        status = asyncio.run(_torture(stores, seed, rounds, results))
    if status == errors.INTERRUPTED:
        context.note("interrupted; the test store was removed")
    elif as_json:
        render.print_json(_document(stores, seed, rounds, results))
    else:
        _report(results, seed, rounds)
    return status


def _require_directory(given: str | None, url: str) -> None:
    """Raise NotFound if the requested directory does not exist: the test would run on another disk than intended."""
    folder = Path(url.removeprefix("sqlite:///")).parent
    if given is not None and url.startswith("sqlite:///") and not folder.is_dir():
        advice = "" if folder.is_absolute() else "; an absolute path needs four slashes: sqlite:////mnt/x.db"
        raise NotFound(f"directory {folder} does not exist{advice}")


async def _torture(stores: ScratchStores, seed: int, rounds: int, results: list[TrialResult]) -> int:
    async def go() -> int:
        for name in TRIALS:
            async with Spinner(name):
                results.append(await run_trial(name, stores, SystemClock(), seed=seed, rounds=rounds))
        return errors.DONE if all(one.ok for one in results) else errors.FAILED

    return await signals.run_until_signalled(go(), _no_drain)


async def _no_drain() -> None:
    """Stop at once: a trial has nothing to finish."""


def _report(results: list[TrialResult], seed: int, rounds: int) -> None:
    render.print_table(COLUMNS, [_row(one) for one in results], stretch=6)
    for one in results:
        for finding in one.findings:
            render.print_text(visible(f"{one.name}: {finding}"))
        if one.broken:
            render.print_text(visible(f"{one.name} did not finish: {one.broken}"))
    if all(one.ok for one in results):
        render.print_text("Nothing was lost, doubled or leaked.")
    else:
        render.print_text(f"Failed. Repeat this run with: holdfast torture --seed {seed} --rounds {rounds}")


def _row(one: TrialResult) -> list[str]:
    if one.skipped:
        return [one.name, "skipped", "", "", "", "", one.skipped]
    tried = ", ".join(
        f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in one.tried.items()
    )
    counts = [str(number) for number in (one.lost, one.doubled, one.leaked)]
    return [one.name, tried, *counts, f"{one.seconds:.1f}", "broken" if one.broken else one.note]


def _document(stores: ScratchStores, seed: int, rounds: int, results: list[TrialResult]) -> dict[str, object]:
    trials = [{**msgspec.to_builtins(one), "seconds": round(one.seconds, 3), "ok": one.ok} for one in results]
    return {
        "ok": all(one.ok for one in results),
        "where": stores.where,
        "seed": seed,
        "rounds": rounds,
        "trials": trials,
    }
