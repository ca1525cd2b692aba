"""Shared by all commands: the settings, common options, and access to the store."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from holdfast.model.errors import NotSaved
from holdfast.model.sanitize import one_line

if TYPE_CHECKING:
    from holdfast.engine.admission.open_session import OpenedSession
    from holdfast.engine.session_actions import SessionActions
    from holdfast.model.session import Session
    from holdfast.settings import Settings
    from holdfast.store.database import Transaction
    from holdfast.store.repos.sessions import ResolvedRef
    from holdfast.wiring.store import App

P = ParamSpec("P")
T = TypeVar("T")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class CliContext:
    """The global options of the command line."""

    def __init__(self, home: Path | None, *, owns_process: bool = False) -> None:
        self._home = home
        self.owns_process = owns_process
        """Whether this process is `holdfast` itself, so that its environment may be changed."""

    @cached_property
    def settings(self) -> "Settings":
        from holdfast import config, logs

        settings = config.load(self._home)
        logs.add_handlers(settings)
        return settings


def settings() -> "Settings":
    return _current().settings


def require_terminal(backend: str | None) -> None:
    """Raise Invalid if the settings lack what a terminal backend needs."""
    settings().terminal.check(backend, "--terminal")


def _current() -> CliContext:
    found = click.get_current_context().find_object(CliContext)
    assert found is not None, "the root command creates it"
    return found


def hide_secrets() -> None:
    """Remove the secrets of the settings from the environment, so that tools cannot read them. Call it before opening an engine."""
    from holdfast import config

    current = _current()
    if current.owns_process:
        config.forget_secrets(current.settings)


def with_app(
    work: "Callable[[App], Awaitable[T]]", *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Open the store, do the work, close the store. By default the work runs in asyncio's own event loop."""
    from holdfast.wiring.store import open_app

    loaded = settings()

    async def go() -> T:
        async with open_app(loaded) as app:
            return await work(app)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(go())


def read(work: "Callable[Concatenate[Transaction, P], T]", *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a read on one snapshot of the store."""
    return with_app(lambda app: app.database.read(work, *args, **kwargs))


def read_current(work: "Callable[[Transaction], T]", sessions_of: "Callable[[T], Iterable[Session]]") -> T:
    """Like `read`, but first release the sessions of dead processes, so that none of them is shown as running.

    A read-only store is shown as it is.
    """

    async def go(app: "App") -> T:
        found = await app.database.read(work)
        try:
            released = await _release_dead(app, sessions_of(found))
        except NotSaved as e:
            note(f"sessions of dead processes may be shown as running: {e}")
            return found
        return await app.database.read(work) if released else found

    return with_app(go)


def write(work: "Callable[[Transaction, App], T]") -> T:
    """Run a write in one transaction. Use `act` to change a session."""
    return with_app(lambda app: app.database.write(work, app))


def read_one(ref: str, work: "Callable[[Transaction, Session], T]") -> T:
    """Run a read on one session, in the trash or not, on one snapshot."""
    from holdfast.store.repos import sessions

    def inside(tx: "Transaction") -> "tuple[ResolvedRef, T]":
        found = sessions.resolve(tx, ref, trashed=True)
        return found, work(tx, found.session)

    found, result = read_current(inside, lambda both: [both[0].session])
    note_ambiguous(ref, found)
    return result


def act(ref: str, do: "Callable[[SessionActions, Session], Awaitable[T]]", *, trashed: bool = False) -> T:
    """Change the session that `ref` names."""
    from holdfast.store.repos import sessions

    async def go(app: "App") -> "tuple[ResolvedRef, T]":
        found = await app.database.read(sessions.resolve, ref, trashed=trashed)
        return found, await do(actions_of(app), found.session)

    found, result = with_app(go)
    note_ambiguous(ref, found)
    return result


def actions_of(app: "App") -> "SessionActions":
    from holdfast.engine.session_actions import SessionActions
    from holdfast.process_lookup import current_identity

    return SessionActions(app.database, app.clock, app.ids, current_identity())


async def _release_dead(app: "App", held: "Iterable[Session]") -> bool:
    """Release sessions that dead processes hold. True if there were any."""
    holders = {one.lease_worker for one in held if one.lease_worker is not None}
    if not holders:
        return False
    from holdfast.engine.liveness.dead_workers import mark_dead_if_gone
    from holdfast.process_lookup import current_identity

    at = app.clock.now()
    return any(
        [await mark_dead_if_gone(app.database, holder, current_identity(), at=at) is not None for holder in holders]
    )


def note_ambiguous(ref: str, found: "ResolvedRef | OpenedSession") -> None:
    """Note that several sessions have the title `ref`, and which one was used."""
    if found.others:
        note(f"several sessions are titled {ref!r}; using the most recent one: {found.session.id}")


def note(text: str) -> None:
    """Print a notice on standard error."""
    print(one_line(text), file=sys.stderr, flush=True)
