"""Follows a session while it works towards its goal."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from holdfast.engine.streaming.bus import LiveText, StreamItem, TurnBroke
from holdfast.model.entry import Entry
from holdfast.model.goal import GOAL_EVENTS
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import sessions


async def follow_goal(
    watched: AsyncGenerator[StreamItem, None], database: Database, session_id: str
) -> AsyncGenerator[Entry | LiveText, None]:
    """Yield what a watched session does until its goal is not active any more and no turn is open. Raises what breaks a turn."""
    over_at: int | None = None
    async with aclosing(watched):
        async for item in watched:
            if isinstance(item, TurnBroke):
                raise item.error
            yield item
            if not isinstance(item, Entry):
                continue
            if over_at is None and type(item.event) in GOAL_EVENTS:
                over_at = await database.read(_last_event, session_id)
            if over_at is not None and item.seq >= over_at:
                return


def _last_event(tx: Transaction, session_id: str) -> int | None:
    """The number of the session's last event if nothing more is to come by itself."""
    session = sessions.get(tx, session_id)
    is_over = session.summary.goal != "active" and session.summary.open_turn is None
    return session.seq if is_over else None
