"""What commands share: the settings, the options that many have, and the way to the store."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from holdfast.interop.visible import one_line
from holdfast.model.errors import Busy, NotSaved

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.engine.opening import Opened
    from holdfast.model.session import Session
    from holdfast.settings import Settings
    from holdfast.store.database import Transaction
    from holdfast.store.sessions import Found

P = ParamSpec("P")
T = TypeVar("T")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class Face:
    """What stood before the command on the line."""

    def __init__(self, home: Path | None) -> None:
        self._home = home

    @cached_property
    def settings(self) -> "Settings":
        from holdfast import config, logs

        settings = config.load(self._home)
        logs.set_up(settings)
        return settings


def settings() -> "Settings":
    face = click.get_current_context().find_object(Face)
    assert face is not None, "the root command puts it there"
    return face.settings


def with_app(work: "Callable[[App], Awaitable[T]]") -> T:
    """Open everything, do the work, close everything."""
    from holdfast.app import open_app

    found = settings()

    async def go() -> T:
        async with open_app(found) as app:
            return await work(app)

    return asyncio.run(go())


def read(work: "Callable[Concatenate[Transaction, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function of a transaction on one snapshot of the store."""
    return with_app(lambda app: app.database.read(work, *args, **kwargs))


def read_true(work: "Callable[[Transaction], T]", sessions_of: "Callable[[T], Iterable[Session]]") -> T:
    """As `read`, and no session is shown as running whose process is gone. A store that is read-only is shown as it is."""

    async def go(app: "App") -> T:
        found = await app.database.read(work)
        try:
            buried = await _bury_the_gone(app, sessions_of(found))
        except NotSaved as e:
            note(f"some may be shown as running whose process is gone: {e}")
            return found
        return await app.database.read(work) if buried else found

    return with_app(go)


def write(work: "Callable[[Transaction, App], T]", *refs: str) -> T:
    """Run a function of a transaction, and commit what it did; the sessions it names are taken from the dead if need be."""

    async def go(app: "App") -> T:
        try:
            return await app.database.write(work, app)
        except Busy:
            if not any([await _free_from_the_dead(app, ref) for ref in refs]):
                raise
            return await app.database.write(work, app)

    return with_app(go)


def read_one(ref: str, work: "Callable[[Transaction, Session], T]") -> T:
    """Run a function of a transaction and the session a person means, in the trash or not, on one snapshot."""
    from holdfast.store import sessions

    def inside(tx: "Transaction") -> "tuple[Found, T]":
        found = sessions.resolve(tx, ref, trashed=True)
        return found, work(tx, found.session)

    found, result = read_true(inside, lambda both: [both[0].session])
    tell_others(ref, found)
    return result


def change(ref: str, work: "Callable[[Transaction, Session, App], T]", *, trashed: bool = False) -> T:
    """As `read_one`, and commit what it did. The session is found in the same transaction that changes it."""
    from holdfast.store import sessions

    def inside(tx: "Transaction", app: "App") -> "tuple[Found, T]":
        found = sessions.resolve(tx, ref, trashed=trashed)
        return found, work(tx, found.session, app)

    found, result = write(inside, ref)
    tell_others(ref, found)
    return result


async def _free_from_the_dead(app: "App", ref: str) -> bool:
    """Whether the session was held by a process that is gone, and is free now."""
    from holdfast.store import sessions

    found = await app.database.read(sessions.resolve, ref, trashed=True)
    return await _bury_the_gone(app, [found.session])


async def _bury_the_gone(app: "App", held: "Iterable[Session]") -> bool:
    """Whether some of the sessions were held by processes that are gone, and are free now."""
    from holdfast.engine.liveness import bury_if_gone
    from holdfast.identity import identity

    holders = {one.lease_worker for one in held if one.lease_worker is not None}
    at = app.clock.now()
    return any([await bury_if_gone(app.database, holder, identity(), at=at) is not None for holder in holders])


def tell_others(ref: str, found: "Found | Opened") -> None:
    """Of several sessions that fit one was taken: say so, once it is done."""
    if found.others:
        note(f"several sessions are titled {ref!r}; this is the one used last: {found.session.id}")


def note(text: str) -> None:
    """Something the person should know that is not the answer."""
    print(one_line(text), file=sys.stderr, flush=True)
