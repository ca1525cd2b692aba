"""Other names of a session: ids it had elsewhere, which never change, and channels, which point to their current session."""

from typing import cast

import msgspec

from holdfast.model.errors import Conflict
from holdfast.store.database import Transaction


class ChannelSession(msgspec.Struct, frozen=True):
    """A channel, its current session, the number of the session's last event and the time of that."""

    channel: str
    session_id: str
    seq: int
    updated_at: int


def add(tx: Transaction, alias: str, session_id: str, *, at: int) -> None:
    """Bind the alias to the session. Raises Conflict if it is bound to another one: an alias never changes its session."""
    if tx.one("aliases.add", alias=alias, session=session_id, at=at) is None and find(tx, alias) != session_id:
        raise Conflict(f"{alias} is already an alias of session {find(tx, alias)}")


def find(tx: Transaction, alias: str) -> str | None:
    row = tx.one("aliases.find", alias=alias)
    return None if row is None else cast("str", row[0])


def find_alias_and_channel(tx: Transaction, alias: str | None, channel: str | None) -> tuple[str | None, str | None]:
    """The id of the alias's session, and that of the channel's current session."""
    row = tx.one("aliases.find_alias_and_channel", alias=alias, channel=channel)
    return cast("tuple[str | None, str | None]", row)


def list_by_session(tx: Transaction, session_id: str) -> list[str]:
    return [cast("str", row[0]) for row in tx.all("aliases.list_by_session", session=session_id)]


def set_channel_session(tx: Transaction, channel: str, session_id: str, *, at: int) -> None:
    """Make the session the current one of its channel."""
    tx.run("aliases.set_channel_session", channel=channel, session=session_id, at=at)


def get_channel_session(tx: Transaction, channel: str) -> str | None:
    """The id of the channel's current session."""
    row = tx.one("aliases.get_channel_session", channel=channel)
    return None if row is None else cast("str", row[0])


def list_channels(tx: Transaction, prefix: str) -> list[ChannelSession]:
    """The current sessions of all channels whose names begin with the prefix, without those in the trash."""
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return [ChannelSession(*row) for row in tx.all("aliases.list_channels", prefix=prefix, after=after)]  # type: ignore[arg-type] # the schema checks the types
