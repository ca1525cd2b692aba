"""A request that failed and comes once more: it takes the place of the failed one, instead of standing beside it.

Clients repeat by themselves what the server could not answer (OpenAI's own do so twice), and mostly without a key. Without
this the model would be told the same words three times over, or the session be forked for each attempt. Only a turn of which
nothing has come is taken back: the model has said nothing in it and no tool was run. The log keeps it.
"""

from collections.abc import Sequence

from holdfast.engine.branches import Given
from holdfast.engine.rewind import look_back, rewind
from holdfast.model.entry import Entry
from holdfast.model.event import ANNOTATIONS, ModelSaid, ToolStarted, TurnEnded, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session
from holdfast.model.shown import Item, Shown
from holdfast.store import histories, inputs, log, turns
from holdfast.store.database import Transaction


def take_back(tx: Transaction, session: Session, given: Sequence[Given], *, at: int) -> Session:
    """The session without its last turn, if that failed and `given` ends with just what it was asked."""
    if session.summary.open_turn is not None or session.lease_worker is not None or inputs.waiting(tx, session.id):
        return session
    last, _ = histories.catch_up(tx, session)
    [end, *since] = log.read(tx, session.id, first=last.seq)
    if not isinstance(end.event, TurnEnded) or end.event.outcome != "failed":
        return session
    place = turns.find(tx, session.id, end.event.turn_id)
    if place is None or not all(isinstance(entry.event, ANNOTATIONS) for entry in since):
        return session
    asked = _asked(turns.entries(tx, session.id, place))
    if asked is None or asked != _asking(given):
        return session
    return rewind(tx, look_back(tx, session.id, why="retry"), at=at)


def _asked(turn: Sequence[Entry]) -> tuple[list[Item], list[Sequence[Content]]] | None:
    """What the turn was asked; None if anything has come of it."""
    if any(isinstance(entry.event, ModelSaid | ToolStarted) for entry in turn):
        return None
    shown = Shown()
    for entry in turn[:-1]:
        shown.add(entry)
    return shown.items, [entry.event.parts for entry in turn if isinstance(entry.event, UserSaid)]


def _asking(given: Sequence[Given]) -> tuple[list[Item], list[Sequence[Content]]]:
    """What comes after the last answer of the model."""
    answers = [place for place, one in enumerate(given) if one.role == "assistant"]
    new = given[answers[-1] + 1 if answers else 0 :]
    results, words = ([one for one in new if one.role == role] for role in ("tool", "user"))
    return [one.item for one in [*results, *words]], [one.parts for one in words]
