"""Messaging platforms as they are connected: one worker at a time serves each, and how far it was read is kept."""

from typing import Literal, cast

import msgspec

from holdfast.store.database import Transaction

Link = Literal["off", "connecting", "connected", "down"]


class Platform(msgspec.Struct, frozen=True):
    """A row of the platform table, in the order of its columns. `position` is how far it was read, in its own words."""

    name: str
    worker_id: str | None
    state: Link
    since: int
    error: str
    error_at: int | None
    received: int
    queued: int
    position: str


def take(tx: Transaction, name: str, worker_id: str, *, at: int) -> Platform | None:
    """Become the one that serves the platform; None while another worker that lives does."""
    row = tx.one("platforms.take", name=name, worker=worker_id, at=at)
    return None if row is None else Platform(*row)  # type: ignore[arg-type] # the schema checks the types


def note(tx: Transaction, name: str, worker_id: str, state: Link, *, at: int, error: str = "") -> None:
    """Write down how the connection is."""
    tx.run("platforms.note", name=name, worker=worker_id, state=state, error=error, at=at)


def release(tx: Transaction, name: str, worker_id: str, *, at: int) -> None:
    """Leave the platform to whoever comes next."""
    tx.run("platforms.release", name=name, worker=worker_id, at=at)


def receive(tx: Transaction, name: str, count: int, position: str | None, *, at: int) -> int:
    """The last of the next `count` numbers for messages that came. With `position`, that is how far was read."""
    row = tx.one("platforms.receive", name=name, count=count, position=position, at=at)
    assert row is not None, "a platform that is not there is added"
    return cast("int", row[0])


def queue(tx: Transaction, name: str, *, at: int) -> int:
    """The next number for something to be delivered."""
    row = tx.one("platforms.queue", name=name, at=at)
    assert row is not None, "a platform that is not there is added"
    return cast("int", row[0])


def get(tx: Transaction, name: str) -> Platform | None:
    row = tx.one("platforms.get", name=name)
    return None if row is None else Platform(*row)  # type: ignore[arg-type] # the schema checks the types


def every(tx: Transaction) -> list[Platform]:
    return [Platform(*row) for row in tx.all("platforms.all")]  # type: ignore[arg-type] # the schema checks the types
