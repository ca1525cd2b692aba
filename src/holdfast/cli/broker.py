"""`holdfast broker`: many users, each with a home and a worker of their own."""

import asyncio
from pathlib import Path

import click
import msgspec

from holdfast import config
from holdfast.broker import admin
from holdfast.cli import errors, face, render, signals
from holdfast.clock import SystemClock
from holdfast.interop import shapes
from holdfast.model.counted import counted
from holdfast.model.times import iso
from holdfast.settings import Settings


@click.group(invoke_without_command=True)
@click.option("--host", help="Where to listen. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one. [8420]")
@click.pass_context
def broker(ctx: click.Context, host: str | None, port: int | None) -> int | None:
    """Serve many users, each with a worker of their own that is there when it is needed."""
    if ctx.invoked_subcommand is not None:
        return None
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = face.settings()
    settings = msgspec.structs.replace(settings, api=msgspec.structs.replace(settings.api, **given))
    for warning in admin.refuse_unfit(settings):
        face.note(f"warning: {warning}")
    if not admin.has_users(settings):
        face.note("there are no users yet: holdfast broker add NAME gives somebody a home and a key")
    return asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    from holdfast.brokering import broker as until  # the web's libraries take a while to load

    stopping = asyncio.Event()
    with signals.caught(lambda number: stopping.set()):
        await until(settings, config.environment(), _tell, stopping)
    return errors.DONE


def _tell(address: str, users: str) -> None:
    render.out(f"Holdfast brokers at {address}; the users are in {users}")
    render.flush()


@broker.command()
@click.argument("name")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The config.toml that the home begins with. [user.toml in the broker's home]",
)
@face.json_option
def add(*, name: str, file: Path | None, as_json: bool) -> None:
    """Give NAME a home and a key. The key is shown this once."""
    settings = face.settings()
    config.check(file or settings.home / admin.TEMPLATE)
    user, key, warnings = admin.add(settings, name, file, SystemClock().now())
    for warning in warnings:
        face.note(f"warning: {warning}")
    if as_json:
        render.document({"name": user.name, "key": key, "uid": user.uid, "added_at": iso(user.added_at)})
    else:
        render.out(f"{user.name} may come with this key, which is kept nowhere: {key}")


@broker.command("key")
@click.argument("name")
@face.json_option
def new_key(*, name: str, as_json: bool) -> None:
    """Give NAME another key. The old one counts no longer, nor does any login made with it."""
    key = admin.new_key(face.settings(), name)
    if as_json:
        render.document({"name": name, "key": key})
    else:
        render.out(f"{name} may come with this key from now on, which is kept nowhere: {key}")


@broker.command()
@click.argument("name")
def remove(*, name: str) -> None:
    """Let NAME in no longer, and end their worker. Their home is put aside, not deleted."""
    kept = asyncio.run(admin.remove(face.settings(), name, SystemClock().now()))
    where = "there was no home to keep" if kept is None else f"the home is kept at {kept}"
    render.out(f"{name} is no longer a user; {where}")


@broker.command()
@face.json_option
def status(*, as_json: bool) -> None:
    """All users: whose worker runs, since when, how much it takes and how much it has to do."""
    now, users = admin.look(face.settings())
    if as_json:
        running = None if now is None else {"address": now.address, "pid": now.identity.pid}
        render.document({"broker": running, "users": [_document(one) for one in users]})
        return
    where = "no broker runs" if now is None else f"a broker runs at {now.address}, as {now.identity.pid}"
    awake = sum(one.pid is not None for one in users)
    render.out(f"{where}; {counted(len(users), 'user')}, {counted(awake, 'worker')}")
    if users:
        render.table(
            ["user", "worker", "pid", "since", "memory", "disk", "open", "starts", "note"],
            list(map(_row, users)),
            stretch=8,
        )


def _row(one: admin.Seen) -> list[str]:
    wakes = f"wakes {render.day(one.wake_at)}" if one.wake_at is not None else ""
    return [
        one.name,
        one.state,
        str(one.pid or ""),
        render.day(one.since) if one.since is not None else "",
        render.size(one.memory) if one.memory is not None else "",
        render.size(one.disk) if one.disk is not None else "",
        str(one.open),
        str(one.starts),
        one.complaint or wakes,
    ]


def _document(one: admin.Seen) -> dict[str, object]:
    shown = msgspec.structs.asdict(one)
    return shown | {"since": shapes.time(one.since), "wake_at": shapes.time(one.wake_at)}
