"""Connected messaging platforms: one worker at a time serves each; the read position is stored."""

from typing import Literal, cast

import msgspec

from holdfast.store.database import Transaction

LinkState = Literal["off", "connecting", "connected", "down"]


class PlatformRow(msgspec.Struct, frozen=True):
    """A row of the platform table, in the order of its columns. `position` is how far it was read, in the platform's format."""

    name: str
    worker_id: str | None
    state: LinkState
    since: int
    error: str
    error_at: int | None
    received: int
    queued: int
    position: str


def take(tx: Transaction, name: str, worker_id: str, *, at: int) -> PlatformRow | None:
    """Make the worker serve the platform; None while another live worker does."""
    row = tx.one("platforms.take", name=name, worker=worker_id, at=at)
    return None if row is None else PlatformRow(*row)  # type: ignore[arg-type] # the schema checks the types


def record_state(tx: Transaction, name: str, worker_id: str, state: LinkState, *, at: int, error: str = "") -> None:
    """Record the state of the connection."""
    tx.run("platforms.record_state", name=name, worker=worker_id, state=state, error=error, at=at)


def release(tx: Transaction, name: str, worker_id: str, *, at: int) -> None:
    """Stop serving the platform."""
    tx.run("platforms.release", name=name, worker=worker_id, at=at)


def reserve_inbox_numbers(tx: Transaction, name: str, count: int, position: str | None, *, at: int) -> int:
    """Reserve `count` numbers for received messages, and store the read position if given; returns the last number."""
    row = tx.one("platforms.reserve_inbox_numbers", name=name, count=count, position=position, at=at)
    assert row is not None, "a missing platform is added"
    return cast("int", row[0])


def reserve_outbox_number(tx: Transaction, name: str, *, at: int) -> int:
    """Reserve the number of the next delivery."""
    row = tx.one("platforms.reserve_outbox_number", name=name, at=at)
    assert row is not None, "a missing platform is added"
    return cast("int", row[0])


def get(tx: Transaction, name: str) -> PlatformRow | None:
    row = tx.one("platforms.get", name=name)
    return None if row is None else PlatformRow(*row)  # type: ignore[arg-type] # the schema checks the types


def list_all(tx: Transaction) -> list[PlatformRow]:
    return [PlatformRow(*row) for row in tx.all("platforms.list_all")]  # type: ignore[arg-type] # the schema checks the types
