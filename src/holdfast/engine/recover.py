"""What to do with a turn whose worker is gone. Pure: from what the log and the draft say to the events that put it right.

A dead worker's turn comes back through the same door as any other. First one transaction counts the
attempt and writes down what is certain: half-said text becomes a partial message, and a call that
had started is closed as unknown unless its tool changes nothing. Then the turn goes on, or is closed
where only a person should decide to go on. After three attempts the session is put into quarantine,
with everything that is in it.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from holdfast.engine.ask import spent
from holdfast.model.entry import Entry
from holdfast.model.event import Ended, Event, Quarantined, Recovered, Reopened
from holdfast.model.turn import Turn, close, close_call, fold_turn, half_said
from holdfast.store.log import Draft

Policy = Literal["continue", "close"]
MAX_ATTEMPTS = 3
LEFT = "its worker left before the turn was over"
"""The evidence of a clean exit, which says nothing against the session."""

POLICY: dict[str, Policy] = {
    "api": "continue",
    "gateway": "continue",
    "cron": "continue",
    "batch": "continue",
    "chat": "close",
    "run": "close",
    "library": "close",
    "import": "close",
}
"""Where a person sits before the session, that person decides: new words close the old turn, `resume` goes on with it."""


def attempts(entries: Sequence[Entry], turn_id: str) -> int:
    """How often the turn was taken up again after a death, since somebody last reopened the session."""
    count = 0
    for entry in reversed(entries):
        match entry.event:
            case Recovered(turn_id=found, evidence=evidence) if found == turn_id:
                count += evidence != LEFT
            case Reopened(by_person=True):
                break
            case _:
                pass
    return count


def _reopening(entries: Sequence[Entry]) -> list[Event]:
    """A session that was reaped with its turn open is taken up again with it."""
    for entry in reversed(entries):
        if isinstance(entry.event, Reopened):
            return []
        if isinstance(entry.event, Ended):
            return [Reopened(reason="its turn is taken up again")]
    return []


def plan(
    entries: Sequence[Entry],
    turn: Turn,
    draft: Draft | None,
    *,
    policy: Policy,
    evidence: str,
    worker_id: str = "",
    repeatable: Callable[[str], bool],
) -> list[Event]:
    """The events that take the turn up again, to be committed before anything acts."""
    assert turn.id is not None, "only an open turn is recovered"
    attempt = attempts(entries, turn.id) + 1
    if attempt > MAX_ATTEMPTS:
        reason = f"its turn {turn.id} was taken up {MAX_ATTEMPTS} times and the worker died each time ({evidence})"
        return [Quarantined(reason=reason, turn_id=turn.id)]
    events: list[Event] = [
        *_reopening(entries),
        Recovered(turn_id=turn.id, attempt=attempt, action=policy, evidence=evidence, worker_id=worker_id),
    ]
    if draft is not None and draft.turn_id == turn.id and draft.body:
        events.append(half_said(turn.id, draft.body))
    events += [
        close_call(turn, call) for call in turn.open_calls if call.id in turn.started and not repeatable(call.name)
    ]
    if policy == "close":
        for event in events:
            turn = fold_turn(turn, event)
        reason = "the worker died in mid-turn, and nobody asked to go on"
        events += close(turn, outcome="interrupted", reason=reason, usage=spent(entries, turn.id or ""))
    return events
