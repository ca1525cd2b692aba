"""`holdfast backup`, `restore` and `migrate`: the store as a whole."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli import face, render
from holdfast.interop.visible import visible
from holdfast.model.counted import counted

if TYPE_CHECKING:
    from holdfast.store.workers import Worker

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@face.json_option
def backup(*, file: Path, force: bool, as_json: bool) -> None:
    """Copy the whole store to FILE while it is in use, and prove the copy."""
    from holdfast.app import backup_store

    with render.stages() as tell:
        done = backup_store(face.settings(), file, replace=force, on_progress=tell)
    counts = {"sessions": done.report.sessions, "events": done.report.events}
    if as_json:
        return render.document({"file": str(done.path), "bytes": done.bytes, **counts, "verified": True})
    saved = f"{counted(counts['sessions'], 'session')}, {counted(counts['events'], 'event')}, {render.size(done.bytes)}"
    return render.out(visible(f"{done.path}: {saved}; every hash checked"))


@click.command()
@click.argument("file", type=FILE)
@click.option("--replace", is_flag=True, help="Also if there are sessions now; they are saved to a file first.")
@face.json_option
def restore(*, file: Path, replace: bool, as_json: bool) -> None:
    """Make the store what it was when the backup FILE was made.

    The backup is proved before anything is changed. What is in the store now is kept beside it, and it is said where.
    """
    from holdfast.app import restore_store
    from holdfast.clock import SystemClock
    from holdfast.settings import without_password

    settings = face.settings()
    alive = _alive(SystemClock().now(), settings.liveness.stale_seconds)
    with render.stages() as tell:
        done = restore_store(settings, file, alive, replace=replace, on_progress=tell)
    store = without_password(settings.store) if settings.store_path is None else str(settings.store_path)
    saved_as = None if done.saved_as is None else str(done.saved_as)
    if as_json:
        return render.document(
            {
                "file": str(file),
                "store": store,
                "store_id": done.store_id,
                "sessions": done.sessions,
                "events": done.events,
                "saved_as": saved_as,
                "saved_is_damaged": done.saved_is_damaged,
            }
        )
    if saved_as is not None:
        damaged = " (damaged, as it was)" if done.saved_is_damaged else ""
        render.out(visible(f"what was there before is in {saved_as}{damaged}"))
    return render.out(
        visible(f"restored {counted(done.sessions, 'session')}, {counted(done.events, 'event')}; every hash checked")
    )


def _alive(now: int, stale_seconds: float) -> "Callable[[Worker], bool]":
    """Whether a worker runs: seen by itself on this machine, judged by its last sign of life on another."""
    from holdfast.identity import fate, identity
    from holdfast.model.identity import Identity
    from holdfast.model.times import SECOND

    ours = identity()

    def alive(worker: "Worker") -> bool:
        theirs = Identity(host=worker.host, boot=worker.boot, pid=worker.pid, process_started=worker.process_started)
        seen = fate(theirs, ours)
        recent = now - worker.beat_at < stale_seconds * SECOND
        return seen == "alive" or (seen == "elsewhere" and recent)

    return alive


@click.command()
@click.option("--check", is_flag=True, help="Only say what is to be done.")
@click.option(
    "--to", "to", metavar="URL", help="Copy the store to another address, such as postgresql://host/database."
)
@face.json_option
def migrate(*, check: bool, to: str | None, as_json: bool) -> None:
    """Bring the store to this release's schema. Every command does that when it opens the store.

    A store that is changed is copied beside itself first. With --to, the whole store is copied into another database,
    SQLite or PostgreSQL, and proved there before it counts; the settings go on naming the old one, which stays as it is.
    """
    from holdfast.app import migrate_store

    if to is not None:
        if check:
            raise click.UsageError("--check and --to cannot be used together")
        return _move(to, as_json=as_json)
    path, status = migrate_store(face.settings(), check=check)
    after = status.applied if check else status.known
    if as_json:
        return render.document({"store": path, "before": status.applied, "after": after, "known": status.known})
    if status.pending == 0:
        return render.out(visible(f"{path} has schema {status.known}, the newest this release knows"))
    deed = "is to be brought" if check else "was brought"
    return render.out(visible(f"{path} {deed} from schema {status.applied} to {status.known}"))


def _move(url: str, *, as_json: bool) -> None:
    from holdfast.app import at_home, move_store
    from holdfast.clock import SystemClock
    from holdfast.settings import without_password

    settings = face.settings()
    alive = _alive(SystemClock().now(), settings.liveness.stale_seconds)
    with render.stages() as tell:
        done = move_store(settings, url, alive, tell)
    address = without_password(at_home(settings, url))
    if as_json:
        counts = {"sessions": done.sessions, "events": done.events, "rows": done.rows}
        return render.document({"to": address, "store_id": done.store_id, **counts, "verified": True})
    render.out(
        visible(
            f"{address}: {counted(done.sessions, 'session')}, {counted(done.events, 'event')}; every hash checked there"
        )
    )
    return render.out(
        visible(
            f"To use it: HOLDFAST_STORE={shlex.quote(address)}, or store in config.toml. The old store was not changed."
        )
    )
