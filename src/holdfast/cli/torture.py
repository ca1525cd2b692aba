"""`holdfast torture`: the crash suite, on the user's own machine and kind of store."""

import asyncio
import secrets
from pathlib import Path

import click
import msgspec

from holdfast.app import at_home
from holdfast.cli import errors, face, render, signals
from holdfast.cli.spinner import Spinner
from holdfast.clock import SystemClock
from holdfast.interop.visible import visible
from holdfast.model.errors import NotFound
from holdfast.torture.opening import Scratch, scratch
from holdfast.torture.outcome import Outcome
from holdfast.torture.torture import ROUNDS, TRIALS, attempt

COLUMNS = ["trial", "tried", "lost", "doubled", "leaked", "seconds", ""]


@click.command("torture")
@click.option(
    "--store", metavar="URL", help="Beside which store: sqlite:///path or postgresql://… [the one that is set]"
)
@click.option("--seed", type=click.IntRange(min=0), help="Choose as the run with this seed did. [any]")
@click.option(
    "--rounds", type=click.IntRange(min=1, max=100_000), default=ROUNDS, help=f"How long it goes on. [{ROUNDS}]"
)
@face.json_option
def torture_(*, store: str | None, seed: int | None, rounds: int, as_json: bool) -> int:
    """Kill processes in the middle of everything, on a store of its own beside yours, and see what is lost.

    Your own store is neither read nor written.
    """
    url = at_home(face.settings(), store)
    _refuse_nowhere(store, url)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    outcomes: list[Outcome] = []
    with scratch(url) as made:
        if not as_json:
            render.out(visible(f"In {made.where}, removed afterwards; your own store is not touched. Seed {seed}."))
            render.flush()
        status = asyncio.run(_torture(made, seed, rounds, outcomes))
    if status == errors.INTERRUPTED:
        face.note("interrupted; what was made for it is removed")
    elif as_json:
        render.document(_document(made, seed, rounds, outcomes))
    else:
        _report(outcomes, seed, rounds)
    return status


def _refuse_nowhere(given: str | None, url: str) -> None:
    """Raise NotFound for a folder that was asked for and is not there: another disk would be tried than the one that is meant."""
    folder = Path(url.removeprefix("sqlite:///")).parent
    if given is not None and url.startswith("sqlite:///") and not folder.is_dir():
        advice = (
            "" if folder.is_absolute() else "; a path that begins at the root has four slashes: sqlite:////mnt/x.db"
        )
        raise NotFound(f"there is no folder {folder}{advice}")


async def _torture(made: Scratch, seed: int, rounds: int, outcomes: list[Outcome]) -> int:
    async def go() -> int:
        for name in TRIALS:
            async with Spinner(name):
                outcomes.append(await attempt(name, made, SystemClock(), seed=seed, rounds=rounds))
        return errors.DONE if all(one.ok for one in outcomes) else errors.FAILED

    return await signals.unless_signalled(go(), _at_once)


async def _at_once() -> None:
    """Nothing is to be finished first."""


def _report(outcomes: list[Outcome], seed: int, rounds: int) -> None:
    render.table(COLUMNS, [_row(one) for one in outcomes], stretch=6)
    for one in outcomes:
        for finding in one.findings:
            render.out(visible(f"{one.name}: {finding}"))
        if one.broken:
            render.out(visible(f"{one.name} could not be finished: {one.broken}"))
    if all(one.ok for one in outcomes):
        render.out("Nothing was lost, doubled or leaked.")
    else:
        render.out(f"Not as promised. To try the same again: holdfast torture --seed {seed} --rounds {rounds}")


def _row(one: Outcome) -> list[str]:
    if one.skipped:
        return [one.name, "skipped", "", "", "", "", one.skipped]
    tried = ", ".join(
        f"{count:,} {what.removesuffix('s') if count == 1 else what}" for what, count in one.tried.items()
    )
    counts = [str(number) for number in (one.lost, one.doubled, one.leaked)]
    return [one.name, tried, *counts, f"{one.seconds:.1f}", "broken" if one.broken else one.note]


def _document(made: Scratch, seed: int, rounds: int, outcomes: list[Outcome]) -> dict[str, object]:
    trials = [{**msgspec.to_builtins(one), "seconds": round(one.seconds, 3), "ok": one.ok} for one in outcomes]
    return {
        "ok": all(one.ok for one in outcomes),
        "where": made.where,
        "seed": seed,
        "rounds": rounds,
        "trials": trials,
    }
