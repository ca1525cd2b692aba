"""A client's own retry joins the turn that it repeats, without an idempotency key.

OpenAI's clients send a request again when the connection breaks, and number the attempts in `x-stainless-retry-count`.
Such a request, with the same body and from the same caller, joins the newest turn of that body, unless its answer is
known to have reached the client. Other clients repeat without a number: they join only if the worker that admitted the
first attempt is gone and the turn was not over at that time. Otherwise two equal requests are two turns.
"""

from collections import OrderedDict

from holdfast.engine.admission.client_request import ClientRequest
from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ToolStarted, TurnEnded
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import idempotency, recent_requests, sessions, turn_lookup, workers
from holdfast.store.repos.recent_requests import RecentRequest

MOST_ANSWERED = 10_000


class AnsweredTurns:
    """The newest turns whose whole answer this process has sent to a connected client."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, None] = OrderedDict()

    def add(self, turn_id: str) -> None:
        self._turns[turn_id] = None
        if len(self._turns) > MOST_ANSWERED:
            self._turns.popitem(last=False)

    def __contains__(self, turn_id: object) -> bool:
        return turn_id in self._turns


def is_repeat(tx: Transaction, recent: RecentRequest, *, numbered: bool) -> bool:
    """Whether a request that is equal to a recent one joins its turn. `numbered`: the client says that it is a retry.

    The worker of the recent one is recorded as dead by now if it is gone.
    """
    position = turn_lookup.find(tx, recent.session_id, recent.turn_id)
    if position is None or sessions.get(tx, recent.session_id).summary.trashed_at is not None:
        return False
    entries = turn_lookup.read_entries(tx, recent.session_id, position)
    if _failed_without_effect(entries):
        return False  # it is run again and replaces the failed one
    return numbered or _was_cut_off(tx, recent, entries[-1] if position.last else None)


def _failed_without_effect(entries: list[Entry]) -> bool:
    """Whether the turn failed without effect."""
    if not entries or not isinstance(end := entries[-1].event, TurnEnded) or end.outcome != "failed":
        return False
    return not any(isinstance(entry.event, ModelSaid | ToolStarted) for entry in entries)


def _was_cut_off(tx: Transaction, recent: RecentRequest, end: Entry | None) -> bool:
    """Whether the worker of the first attempt ended before the turn did."""
    worker = workers.get(tx, recent.worker_id)
    if worker is None or worker.ended_at is None:
        return False
    return end is None or end.at > worker.ended_at


def join(
    tx: Transaction, arrival: ClientRequest, recent: RecentRequest, *, worker_id: str, at: int
) -> tuple[Session, turn_lookup.TurnPosition]:
    """Record that this worker answers the request now. An idempotency key of the retry is bound to the same turn."""
    recent_requests.set_worker(tx, arrival.owner, arrival.request, recent.turn_id, worker_id)
    if arrival.key:
        idempotency.claim(
            tx,
            recent.session_id,
            arrival.owner,
            arrival.key,
            request=arrival.request,
            turn_id=recent.turn_id,
            at=at,
        )
    position = turn_lookup.find(tx, recent.session_id, recent.turn_id)
    assert position is not None, "a turn that was found once stays in its log"
    return sessions.get(tx, recent.session_id), position
