"""`holdfast serve`: API, dashboard, gateway, schedules and janitor in one worker, or in several processes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli import context, errors, garbage_collection, model_setup, render, signals
from holdfast.cli.parsing.non_empty_types import TEXT
from holdfast.process_slots import MAX_PROCESSES, ProcessSlot
from holdfast.safe_fetch import is_loopback
from holdfast.settings import Settings
from holdfast.wiring.store import App

if TYPE_CHECKING:
    from holdfast.wiring.server import Started


@click.command()
@click.option("--host", type=TEXT, help="Address to listen on. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 picks a free one. [8420]")
@click.option("--fd", type=click.IntRange(min=0), help="Listen on this inherited socket.")
@click.option("--processes", type=click.IntRange(1, MAX_PROCESSES), default=1, help="Number of processes. [1]")
@click.option("--install", is_flag=True, help="Install a systemd user service with these options, and start it.")
@click.option("--uninstall", is_flag=True, help="Stop and remove that service.")
def serve(*, host: str | None, port: int | None, fd: int | None, processes: int, install: bool, uninstall: bool) -> int:
    """Run the API server, dashboard, gateway and schedules."""
    if install or uninstall:
        return _change_service(host, port, fd, processes, install=install, uninstall=uninstall)
    context.hide_secrets()
    settings = _with_address(context.settings(), host, port)
    model_setup.warn_about_model(settings.model)
    if fd is None and not is_loopback(settings.api.host):
        context.note(
            f"warning: anyone who can reach {settings.api.host} and has the API key can run tools on this machine"
        )
    if processes > 1:
        return _serve_in_processes(settings, fd, processes)
    return _run(lambda app: _serve(app, settings, _announce, fd))


def _change_service(
    host: str | None, port: int | None, fd: int | None, processes: int, *, install: bool, uninstall: bool
) -> int:
    from holdfast.cli.service import install as service

    if install and uninstall:
        raise click.UsageError("--install and --uninstall cannot be used together")
    if uninstall:
        service.uninstall()
        return errors.DONE
    if fd is not None:
        raise click.UsageError("--fd and --install cannot be used together")
    given = (("--host", host), ("--port", port), ("--processes", processes if processes > 1 else None))
    service.install(context.settings(), [str(word) for pair in given if pair[1] is not None for word in pair])
    return errors.DONE


def _with_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    return msgspec.structs.replace(settings, api=msgspec.structs.replace(settings.api, **given))


def _run(work: "Callable[[App], Coroutine[Any, Any, int]]") -> int:
    return context.with_app(work, loop_factory=_new_event_loop)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's if it is installed: it takes an eighth off the CPU time of a turn."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _serve_in_processes(settings: Settings, descriptor: int | None, count: int) -> int:
    """Serve in so many processes; returns in each of them and in the supervising one."""
    from holdfast.cli.server_processes import ServerProcesses
    from holdfast.wiring.server import (
        open_address,
    )  # loaded here, so that the processes share the memory of its imports

    shared, address, key_location = open_address(settings, descriptor)
    group = ServerProcesses(count, lambda: _announce(address, key_location))
    slot = group.run()
    if isinstance(slot, int):
        return slot

    def begin(address: str, key_location: str) -> None:
        group.report_ready(slot)
        garbage_collection.resume()

    return _run(lambda app: _serve(app, settings, begin, shared, slot))


async def _serve(
    app: App, settings: Settings, started: "Started", descriptor: int | None, slot: ProcessSlot | None = None
) -> int:
    from holdfast.wiring.server import serve as serve_until  # the web libraries load slowly

    app.settings = settings
    stopping = asyncio.Event()
    if slot is not None:
        asyncio.get_running_loop().add_signal_handler(signals.DRAIN_SIGNAL, stopping.set)
    with signals.catch_signals(lambda number: stopping.set()):
        await serve_until(app, started, stopping, descriptor, slot)
    return errors.DONE


def _announce(address: str, key: str) -> None:
    render.print_text(f"Holdfast is listening on {address}; the API key is {key}")
    render.flush()
    garbage_collection.resume()
