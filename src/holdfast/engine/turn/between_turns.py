"""Actions in a session without an open turn, such as a compaction or the check of a goal."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.loop import TurnSettings
from holdfast.model.event import Event
from holdfast.store.database import Transaction
from holdfast.store.repos.input_queue import Input


class CommitBetweenTurns(msgspec.Struct, frozen=True):
    """The events to commit, and what else belongs to the same transaction."""

    events: Sequence[Event]
    also: tuple[Callable[[Transaction], object], ...] = ()
    then: Input | None = None
    """Begins a turn unless input is queued; of queued input, its first events become the first."""
    check: Callable[[Transaction], object] | None = None
    """If it raises, nothing is committed."""


ActionBetweenTurns = Callable[[ActiveSession, TurnSettings], Awaitable[CommitBetweenTurns]]
