"""`holdfast sessions stats`: count sessions by state and end reason."""

import click
import msgspec

from holdfast.cli import context, render
from holdfast.engine.liveness.janitor import assess_worker
from holdfast.engine.stats import SessionStats, compute_stats
from holdfast.model.text import counted
from holdfast.process_lookup import current_identity
from holdfast.slash.format import describe_end
from holdfast.store.database import Transaction
from holdfast.store.repos import file_changes, session_list, workers


@click.command()
@context.json_option
def stats(as_json: bool) -> None:
    """Count sessions by state and end reason.

    An orphaned session is open but its worker is dead. The count should be zero.
    """
    found = context.read(_count)
    changes, contents, size = context.read(file_changes.get_totals)
    if as_json:
        stored = {"changes": changes, "contents": contents, "bytes": size}
        render.print_json({**msgspec.structs.asdict(found), "open": found.open, "files": stored})
        return
    rows = [
        ("total", found.total),
        ("open", found.open),
        ("open: active", found.owned),
        ("open: idle", found.waiting),
        ("open: quarantined", found.quarantined),
        ("orphaned", found.leaked),
        *((f"ended: {describe_end(reason)}", count) for reason, count in found.by_reason.items()),
    ]
    render.print_table(
        ["sessions", "count", "share"],
        [[name, f"{count:,}", _share(count, found.total)] for name, count in rows],
        stretch=0,
    )
    if changes:
        kept = f"{counted(contents, 'content')}, {render.format_size(size)}"
        context.note(f"for rewind: {counted(changes, 'change')} of files, {kept}")


def _count(tx: Transaction) -> SessionStats:
    ours = current_identity()
    alive = {worker.id for worker in workers.list_alive(tx) if assess_worker(worker, ours).state != "dead"}
    return compute_stats(session_list.count_by_kind(tx), alive)


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else ""
