"""`holdfast broker`: serve many users, each with their own home and worker."""

import asyncio
from pathlib import Path

import click
import msgspec

from holdfast import config
from holdfast.broker import admin
from holdfast.cli import context, errors, render, signals
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.cli.parsing.non_empty_types import PATH, TEXT
from holdfast.clock import SystemClock, format_local_time
from holdfast.interop.serialization import format_time
from holdfast.model.sanitize import visible
from holdfast.model.text import counted
from holdfast.model.times import iso
from holdfast.settings import Settings


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@click.option("--host", type=TEXT, help="Address to listen on. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one. [8420]")
@click.pass_context
def broker(ctx: click.Context, host: str | None, port: int | None) -> int | None:
    """Serve many users, each with their own worker.

    Workers start on demand and stop when idle.
    """
    if ctx.invoked_subcommand is not None:
        return None
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = context.settings()
    settings = msgspec.structs.replace(settings, api=msgspec.structs.replace(settings.api, **given))
    for warning in admin.check_settings(settings):
        context.note(f"warning: {warning}")
    if not admin.has_users(settings):
        context.note("no users yet; add one with: holdfast broker add NAME")
    context.hide_secrets()
    return asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    from holdfast.wiring.broker import run_broker as serve_until  # the web libraries load slowly

    stopping = asyncio.Event()
    with signals.catch_signals(lambda number: stopping.set()):
        await serve_until(settings, config.environment(), _announce, stopping)
    return errors.DONE


def _announce(address: str, users: str) -> None:
    render.print_text(f"Holdfast broker is listening on {address}; users are stored in {users}")
    render.flush()


@broker.command()
@click.argument("name")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=PATH,
    help="Copy this config.toml into the new home. [user.toml in the broker's home]",
)
@context.json_option
def add(*, name: str, file: Path | None, as_json: bool) -> None:
    """Add user NAME and print their key. The key is shown only once."""
    settings = context.settings()
    config.check(file or settings.home / admin.TEMPLATE)
    user, key, warnings = admin.add_user(settings, name, file, SystemClock().now())
    for warning in warnings:
        context.note(f"warning: {warning}")
    if as_json:
        render.print_json({"name": user.name, "key": key, "uid": user.uid, "added_at": iso(user.added_at)})
    else:
        render.print_text(f"Added user {user.name}. API key (not stored, shown only now): {key}")


@broker.command("key")
@click.argument("name")
@context.json_option
def new_key(*, name: str, as_json: bool) -> None:
    """Replace the key of user NAME. The old key and its logins stop working."""
    key = admin.new_key(context.settings(), name)
    if as_json:
        render.print_json({"name": name, "key": key})
    else:
        render.print_text(f"Replaced the key of {name}. New API key (not stored, shown only now): {key}")


@broker.command()
@click.argument("name")
def remove(*, name: str) -> None:
    """Remove user NAME and stop their worker. Their home is moved aside, not deleted."""
    kept = asyncio.run(admin.remove_user(context.settings(), name, SystemClock().now()))
    where = "they had no home" if kept is None else f"their home was moved to {kept}"
    render.print_text(f"Removed user {name}; {where}")


@broker.command()
@context.json_option
def status(*, as_json: bool) -> None:
    """List users, their workers and their load."""
    now, users = admin.load_status(context.settings())
    if as_json:
        facts = {} if now is None else {"address": now.address, "pid": now.identity.pid, "complaints": now.complaints}
        running = facts or None
        render.print_json({"broker": running, "users": [_document(one) for one in users]})
        return
    where = "broker not running" if now is None else f"broker running at {now.address} (pid {now.identity.pid})"
    active = sum(one.pid is not None for one in users)
    render.print_text(f"{where}; {counted(len(users), 'user')}, {counted(active, 'worker')}")
    for failure in [] if now is None else now.complaints:
        render.print_text(visible(f"! task {failure}"))
    if users:
        render.print_table(
            ["user", "worker", "pid", "since", "memory", "disk", "requests", "starts", "note"],
            list(map(_row, users)),
            stretch=8,
        )


def _row(one: admin.UserStatus) -> list[str]:
    next_start = f"starts {format_local_time(one.wake_at)}" if one.wake_at is not None else ""
    return [
        one.name,
        one.state,
        str(one.pid or ""),
        format_local_time(one.since) if one.since is not None else "",
        render.format_size(one.memory) if one.memory is not None else "",
        render.format_size(one.disk) if one.disk is not None else "",
        str(one.open),
        str(one.starts),
        one.complaint or next_start,
    ]


def _document(one: admin.UserStatus) -> dict[str, object]:
    fields = msgspec.structs.asdict(one)
    return fields | {"since": format_time(one.since), "wake_at": format_time(one.wake_at)}
