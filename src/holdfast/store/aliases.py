"""Other names of a session: ids it had elsewhere, which stand for ever, and channels, which point to their current session."""

from typing import cast

from holdfast.model.errors import Conflict
from holdfast.store.database import Transaction


def add(tx: Transaction, alias: str, session_id: str, *, at: int) -> None:
    """Let the alias stand for the session. Raises Conflict if it stands for another: an id once issued never changes its meaning."""
    if tx.one("aliases.add", alias=alias, session=session_id, at=at) is None and find(tx, alias) != session_id:
        raise Conflict(f"{alias} is another name of session {find(tx, alias)} already")


def find(tx: Transaction, alias: str) -> str | None:
    row = tx.one("aliases.find", alias=alias)
    return None if row is None else cast("str", row[0])


def of_session(tx: Transaction, session_id: str) -> list[str]:
    return [cast("str", row[0]) for row in tx.all("aliases.of_session", session=session_id)]


def point(tx: Transaction, channel: str, session_id: str, *, at: int) -> None:
    """Make the session the current one of its channel."""
    tx.run("aliases.point_channel", channel=channel, session=session_id, at=at)


def current(tx: Transaction, channel: str) -> str | None:
    """The id of the channel's current session."""
    row = tx.one("aliases.current", channel=channel)
    return None if row is None else cast("str", row[0])
