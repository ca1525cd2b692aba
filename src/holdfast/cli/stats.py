"""`holdfast sessions stats`: how many sessions there are, how they ended, and how many are nobody's."""

import click
import msgspec

from holdfast.cli import face, render
from holdfast.engine.census import Census, take_census
from holdfast.engine.janitor import first_look
from holdfast.identity import identity
from holdfast.store import sessions, workers
from holdfast.store.database import Transaction


@click.command()
@face.json_option
def stats(as_json: bool) -> None:
    """Totals, open ones, the ways sessions ended, and leaked ones: there must be none."""
    found = face.read(_census)
    if as_json:
        render.document({**msgspec.structs.asdict(found), "open": found.open})
        return
    rows = [
        ("total", found.total),
        ("open", found.open),
        ("open: of a living worker", found.owned),
        ("open: waiting for input", found.waiting),
        ("open: in quarantine", found.quarantined),
        ("leaked", found.leaked),
        *((f"ended: {reason}", count) for reason, count in found.by_reason.items()),
    ]
    render.table(
        ["sessions", "count", "share"],
        [[name, f"{count:,}", _share(count, found.total)] for name, count in rows],
        stretch=0,
    )


def _census(tx: Transaction) -> Census:
    ours = identity()
    living = {worker.id for worker in workers.alive(tx) if first_look(worker, ours).state != "dead"}
    return take_census(sessions.stats(tx), living)


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else ""
