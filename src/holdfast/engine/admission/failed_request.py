"""A repeat of a failed request replaces it, instead of being added after it.

Clients repeat failed requests by themselves (OpenAI's do so twice), mostly without a key. Without this, the model would
see the same message three times, or the session would be forked for each attempt. A turn is taken back only if it had no
effect: no reply of the model and no tool call. The log keeps it.
"""

from collections.abc import Sequence

from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.admission.prepared_request import NotPrepared, PreparedRequest
from holdfast.engine.admission.rewind import Rewind, plan_rewind, rewind
from holdfast.model.client_transcript import ClientTranscript, TranscriptItem
from holdfast.model.entry import Entry
from holdfast.model.event import ANNOTATIONS, ModelSaid, ToolStarted, TurnEnded, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import input_queue, log, turn_lookup
from holdfast.store.repos.client_history import HistoryEnd


def plan(tx: Transaction, session: Session, end: HistoryEnd, given: Sequence[ClientMessage]) -> Rewind | None:
    """Plan what `take_back` writes; None if nothing. Call it in a read transaction: it reads the whole log."""
    return plan_rewind(tx, session.id, why="retry") if _has_failed(tx, session, end, given) else None


def take_back(tx: Transaction, session: Session, end: HistoryEnd, prepared: PreparedRequest, *, at: int) -> Session:
    """Take back the last turn if it failed and the messages repeat its input; returns the session.

    The plan is used if the session has not changed since. Raises NotPrepared if no read has made a plan.
    """
    if not _has_failed(tx, session, end, prepared.history.given):
        return session
    if prepared.is_partial:
        raise NotPrepared
    planned = prepared.retry
    if planned is None or (planned.session_id, planned.seq) != (session.id, session.seq):
        planned = plan_rewind(tx, session.id, why="retry")
    return rewind(tx, planned, at=at)


def _has_failed(tx: Transaction, session: Session, end: HistoryEnd, given: Sequence[ClientMessage]) -> bool:
    """Whether the last turn failed without effect, and the messages end with its input."""
    if session.summary.open_turn is not None or session.lease_worker is not None:
        return False
    log.check_head(session, end.entries)
    [last, *since] = end.entries
    if (
        not isinstance(last.event, TurnEnded)
        or last.event.outcome != "failed"
        or input_queue.list_waiting(tx, session.id)
    ):
        return False
    position = turn_lookup.find(tx, session.id, last.event.turn_id)
    if position is None or not all(isinstance(entry.event, ANNOTATIONS) for entry in since):
        return False
    asked = _asked(turn_lookup.read_entries(tx, session.id, position))
    return asked is not None and asked == _asking(given)


def _asked(turn: Sequence[Entry]) -> tuple[list[TranscriptItem], list[Sequence[Content]]] | None:
    """The input of the turn; None if the turn had an effect."""
    if any(isinstance(entry.event, ModelSaid | ToolStarted) for entry in turn):
        return None
    shown = ClientTranscript()
    for entry in turn[:-1]:
        shown.add(entry)
    return shown.items, [entry.event.parts for entry in turn if isinstance(entry.event, UserSaid)]


def _asking(given: Sequence[ClientMessage]) -> tuple[list[TranscriptItem], list[Sequence[Content]]]:
    """The input after the last reply of the model."""
    start = len(given)
    while start > 0 and given[start - 1].role != "assistant":
        start -= 1
    new = given[start:]
    results, messages = ([one for one in new if one.role == role] for role in ("tool", "user"))
    return [one.item for one in [*results, *messages]], [one.parts for one in messages]
