"""`holdfast backup`, `restore` and `migrate`: operations on the whole store."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.non_empty_types import PATH
from holdfast.cli.progress import show_stages
from holdfast.model.sanitize import visible
from holdfast.model.text import counted

if TYPE_CHECKING:
    from holdfast.store.repos.workers import Worker


@click.command()
@click.argument("file", type=PATH)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@context.json_option
def backup(*, file: Path, force: bool, as_json: bool) -> None:
    """Copy the store to FILE while it is in use, and verify the copy."""
    from holdfast.wiring.store import backup_store

    with show_stages() as update:
        done = backup_store(context.settings(), file, replace=force, on_progress=update)
    counts = {"sessions": done.report.sessions, "events": done.report.events}
    if as_json:
        return render.print_json({"file": str(done.path), "bytes": done.bytes, **counts, "verified": True})
    saved = f"{counted(counts['sessions'], 'session')}, {counted(counts['events'], 'event')}, {render.format_size(done.bytes)}"
    return render.print_text(visible(f"Backed up to {done.path}: {saved}; all hashes verified"))


@click.command()
@click.argument("file", type=PATH)
@click.option("--replace", is_flag=True, help="Restore even if the store has sessions; they are saved to a file first.")
@context.json_option
def restore(*, file: Path, replace: bool, as_json: bool) -> None:
    """Restore the store from a backup FILE.

    The backup is verified before anything changes. The current store is kept next to it, and its path is printed.
    """
    from holdfast.clock import SystemClock
    from holdfast.settings import mask_password
    from holdfast.wiring.store import restore_store

    settings = context.settings()
    alive = _alive(SystemClock().now(), settings.liveness.stale_seconds)
    with show_stages() as update:
        done = restore_store(settings, file, alive, replace=replace, on_progress=update)
    store = mask_password(settings.store) if settings.store_path is None else str(settings.store_path)
    saved_as = None if done.saved_as is None else str(done.saved_as)
    if as_json:
        return render.print_json(
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
        damaged = " (damaged, copied as it was)" if done.saved_is_damaged else ""
        render.print_text(visible(f"Saved the previous store as {saved_as}{damaged}"))
    return render.print_text(
        visible(f"Restored {counted(done.sessions, 'session')}, {counted(done.events, 'event')}; all hashes verified")
    )


def _alive(now: int, stale_seconds: float) -> "Callable[[Worker], bool]":
    """A check whether a worker runs: by its process on this machine, by its last heartbeat on another one."""
    from holdfast.model.process_identity import Identity
    from holdfast.model.times import SECOND
    from holdfast.process_lookup import check_process, current_identity

    ours = current_identity()

    def alive(worker: "Worker") -> bool:
        theirs = Identity(host=worker.host, boot=worker.boot, pid=worker.pid, process_started=worker.process_started)
        process = check_process(theirs, ours)
        recent = now - worker.beat_at < stale_seconds * SECOND
        return process == "alive" or (process == "elsewhere" and recent)

    return alive


@click.command()
@click.option("--check", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--to", "to", metavar="URL", help="Copy the store to this URL, such as postgresql://host/database.")
@context.json_option
def migrate(*, check: bool, to: str | None, as_json: bool) -> None:
    """Upgrade the schema of the store, or copy the store elsewhere.

    Every command upgrades the schema when it opens the store; a copy of the old store is kept next to it.
    With --to, copy the whole store into another SQLite or PostgreSQL database and verify the copy.
    The old store and the settings stay as they are.
    """
    from holdfast.wiring.store import migrate_store

    if to is not None:
        if check:
            raise click.UsageError("--check and --to cannot be used together")
        return _copy_to(to, as_json=as_json)
    path, status = migrate_store(context.settings(), check=check)
    after = status.applied if check else status.known
    if as_json:
        return render.print_json({"store": path, "before": status.applied, "after": after, "known": status.known})
    if status.pending == 0:
        return render.print_text(visible(f"{path} is up to date (schema {status.known})"))
    action = "needs an upgrade" if check else "was upgraded"
    return render.print_text(visible(f"{path} {action} from schema {status.applied} to {status.known}"))


def _copy_to(url: str, *, as_json: bool) -> None:
    from holdfast.clock import SystemClock
    from holdfast.settings import mask_password
    from holdfast.wiring.store import move_store, resolve_store_url

    settings = context.settings()
    alive = _alive(SystemClock().now(), settings.liveness.stale_seconds)
    with show_stages() as update:
        done = move_store(settings, url, alive, update)
    address = mask_password(resolve_store_url(settings, url))
    if as_json:
        counts = {"sessions": done.sessions, "events": done.events, "rows": done.rows}
        return render.print_json({"to": address, "store_id": done.store_id, **counts, "verified": True})
    render.print_text(
        visible(
            f"Copied {counted(done.sessions, 'session')}, {counted(done.events, 'event')} to {address}; all hashes verified"
        )
    )
    return render.print_text(
        visible(
            f"To use it, set HOLDFAST_STORE={shlex.quote(address)}, or `store` in config.toml. The old store is unchanged."
        )
    )
