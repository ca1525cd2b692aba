"""`holdfast serve`: the API and the janitor in one worker."""

import asyncio
import ipaddress

import click
import msgspec

from holdfast.app import App
from holdfast.cli import errors, face, render, signals


@click.command()
@click.option("--host", help="Where to listen. [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one. [8420]")
@click.option("--fd", type=click.IntRange(min=0), help="Listen at a socket that was opened by whoever starts this.")
def serve(host: str | None, port: int | None, fd: int | None) -> int:
    """Serve the API until a signal comes."""
    return face.with_app(lambda app: _serve(app, host, port, fd))


async def _serve(app: App, host: str | None, port: int | None, descriptor: int | None) -> int:
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    api = msgspec.structs.replace(app.settings.api, **given)
    app.settings = msgspec.structs.replace(app.settings, api=api)
    if descriptor is None and not _is_loopback(api.host):
        face.note(f"warning: whoever can reach {api.host} and has the key can use this machine's tools")
    from holdfast.serve import serve as until  # the web's libraries take a while to load

    stopping = asyncio.Event()
    with signals.caught(lambda number: stopping.set()):
        await until(app, _tell, stopping, descriptor)
    return errors.DONE


def _tell(address: str, key: str) -> None:
    render.out(f"Holdfast serves at {address}; the key is {key}")
    render.flush()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
