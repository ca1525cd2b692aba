"""Exceptions in turns: when a turn is tried again, and when it ends as failed.

An exception in a turn does not end the worker. The turn is tried again after a pause, and the third exception of one
type ends it as failed, with the exception as the reason. A HoldfastError ends it at once, with its code.
"""

import logging
from collections import Counter

import msgspec

from holdfast.engine.turn.active_session import ActiveSession
from holdfast.model.errors import Corrupt, DeclaredDead, HoldfastError, LeaseLost, NotSaved, Unavailable

logger = logging.getLogger(__name__)
TRIES = 3
LONGEST_SECONDS = 60.0
PASSED_ON = (NotSaved, LeaseLost, DeclaredDead, Unavailable, Corrupt)
"""Failures of the store or of the lease. They are not caused by the turn, which stays open."""


def pause_after(failures: int) -> float:
    """Seconds to wait before the next attempt, by the number of failures."""
    return min(2.0 ** (failures - 1), LONGEST_SECONDS)


class TurnAttempts(msgspec.Struct):
    """The attempts of one task to run a session."""

    played: set[str] = msgspec.field(default_factory=set)
    """Turns that this task began or recovered: after an exception they need no recovery."""
    was_left: bool = False
    """Whether a dead worker had left the session."""
    is_repeat: bool = False
    """Whether this worker has failed to end the same turn before: its traceback is already in the log file."""
    _failures: Counter[tuple[str, type[Exception]]] = msgspec.field(default_factory=Counter)

    def note(self, active: ActiveSession, error: Exception) -> int:
        """Count an exception of the open turn; returns how many of this type there were."""
        turn_id = active.turn.id or ""
        if active.is_taken_up and turn_id:
            self.played.add(turn_id)
        self._failures[turn_id, type(error)] += 1
        count = self._failures[turn_id, type(error)]
        if count == 1 and not self.is_repeat and not isinstance(error, HoldfastError):
            logger.error("session %s: turn %s raised an exception", active.id, turn_id, exc_info=error)
        else:
            logger.warning("session %s: turn %s: %s (%d)", active.id, turn_id, describe(error), count)
        return count


class StuckSessions:
    """Sessions in which even ending the failed turn raised an exception. The turn is still open in the store.

    Every sweep finds such a session. It is tried a few times, and then left until there is new input, a person resumes it,
    or another worker takes it. Only this process remembers that, so a restart with a fixed program tries again.
    """

    def __init__(self) -> None:
        self._failures: Counter[str] = Counter()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._failures

    def is_left_alone(self, session_id: str) -> bool:
        """Whether sweeps no longer try the session."""
        return self._failures[session_id] >= TRIES

    def add(self, session_id: str, error: Exception) -> None:
        """Count a failure. The first is logged with its traceback, the last with what happens next."""
        self._failures[session_id] += 1
        count = self._failures[session_id]
        if count == 1:
            trace = None if isinstance(error, HoldfastError) else error
            logger.error("session %s: its turn could not be ended: %s", session_id, describe(error), exc_info=trace)
        elif count == TRIES:
            logger.error(
                "session %s: its turn could not be ended in %d attempts (%s); it stays open until new input comes, "
                "a person resumes it, or this worker restarts",
                session_id,
                count,
                describe(error),
            )

    def discard(self, session_id: str) -> None:
        self._failures.pop(session_id, None)


def is_final(error: Exception, count: int) -> bool:
    """Whether the exception, after that many, ends its turn."""
    return count >= TRIES or isinstance(error, HoldfastError)


def describe(error: Exception) -> str:
    """The exception on one line, as the reason of a failed turn."""
    if isinstance(error, HoldfastError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def code_of(error: Exception) -> str:
    return error.code if isinstance(error, HoldfastError) else HoldfastError.code
