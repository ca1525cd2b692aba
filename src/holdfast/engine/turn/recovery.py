"""Decides how to recover a turn whose worker is gone. Pure: it derives events from the log and the draft.

One transaction first records the attempt and what is certain: streamed text becomes a partial message, and a call that
had started is closed as unknown, unless its tool changes nothing or can continue it. Then the turn continues, or is closed if only a
person should decide to continue it.

A turn that waited for a model when its worker died did not cause the death and is simply continued, however often that
happens. A turn that was at work in the worker's process is a *suspect*. A suspect of two deaths in a row is replayed in
isolation: its tools run only while those of no other suspect do. If the worker dies in such a replay and nothing else
was at work in it, the turn is proved to be the cause and is set aside. The session continues with the next input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.engine.turn.model_call import spent
from holdfast.model.entry import Entry
from holdfast.model.errors import InQuarantine
from holdfast.model.event import Ended, Event, Quarantined, Recovered, Reopened
from holdfast.model.turn import Turn, close, close_call, fold_turn, half_said
from holdfast.store.repos.log import ReplyDraft

Policy = Literal["continue", "close"]
ISOLATED_AFTER = 2
"""A turn that was at work in this many deaths in a row is replayed in isolation."""
LEFT = "its worker left before the turn was over"
"""The evidence of an orderly shutdown, which makes no turn a suspect."""

POLICY: dict[str, Policy] = {
    "api": "continue",
    "gateway": "continue",
    "cron": "continue",
    "batch": "continue",
    "delegate": "continue",
    "chat": "close",
    "run": "close",
    "library": "close",
    "import": "close",
}
"""Whether a turn is recovered without a person. Where it is closed, the person decides: new input, or `resume`."""


class WorkerDeath(msgspec.Struct, frozen=True):
    """How the worker of the turn ended."""

    evidence: str
    at_work: bool = False
    """Whether the turn was at work in its process: a tool ran, or a replay was being prepared."""
    others: int = 0
    """Other turns that were at work in its process."""


class RecoveryCase(msgspec.Struct, frozen=True):
    """The assessment of a turn after deaths of its workers."""

    attempt: int
    deaths: int
    """Deaths in a row, up to the last one, in which the turn was at work."""
    is_guilty: bool = False

    @property
    def is_isolated(self) -> bool:
        """Whether the next replay must be isolated."""
        return self.deaths >= ISOLATED_AFTER


def judge(entries: Sequence[Entry], turn_id: str, death: WorkerDeath) -> RecoveryCase:
    """Assess a turn after one more death."""
    before = _recoveries(entries, turn_id)
    died = [event for event in before if event.evidence != LEFT]
    row = 0
    while row < len(died) and died[row].suspect:
        row += 1
    if death.evidence == LEFT:
        return RecoveryCase(len(died) + 1, row)
    if not death.at_work:
        return RecoveryCase(len(died) + 1, 0)
    was_isolated = bool(before) and before[0].isolated
    return RecoveryCase(len(died) + 1, row + 1, is_guilty=was_isolated and death.others == 0)


def attempts(entries: Sequence[Entry], turn_id: str) -> int:
    """How often the turn was recovered after a death, since a person last reopened the session."""
    return sum(event.evidence != LEFT for event in _recoveries(entries, turn_id))


def _recoveries(entries: Sequence[Entry], turn_id: str) -> list[Recovered]:
    """The recoveries of the turn since a person last reopened the session, the newest first."""
    found: list[Recovered] = []
    for entry in reversed(entries):
        match entry.event:
            case Recovered(turn_id=recovered) if recovered == turn_id:
                found.append(entry.event)
            case Reopened(by_person=True):
                break
            case _:
                pass
    return found


def _reopening(entries: Sequence[Entry]) -> list[Event]:
    """Reopen a session that was ended while its turn was open."""
    for entry in reversed(entries):
        if isinstance(entry.event, Reopened):
            return []
        if isinstance(entry.event, Ended):
            return [Reopened(reason="its turn is resumed")]
    return []


def plan(
    entries: Sequence[Entry],
    turn: Turn,
    draft: ReplyDraft | None,
    *,
    policy: Policy,
    death: WorkerDeath,
    worker_id: str = "",
    repeatable: Callable[[str], bool],
    known: Mapping[str, str] | None = None,
) -> list[Event]:
    """The events that recover the turn, to be committed before anything acts. `known` are outcomes of calls."""
    assert turn.id is not None, "only an open turn is recovered"
    case = judge(entries, turn.id, death)
    recovered = Recovered(
        turn_id=turn.id,
        attempt=case.attempt,
        action=policy,
        evidence=death.evidence,
        worker_id=worker_id,
        suspect=death.at_work and death.evidence != LEFT,
        isolated=case.is_isolated and policy == "continue",
    )
    events: list[Event] = [*_reopening(entries), recovered, *_streamed(turn, draft)]
    events += [close_call(turn, call, (known or {}).get(call.id, "")) for call in turn.lost_calls(repeatable)]
    if policy == "close":
        for event in events:
            turn = fold_turn(turn, event)
        reason = "the worker died during the turn, and no one resumed it"
        events += close(
            turn, outcome="interrupted", reason=reason, usage=spent(entries, turn.id or ""), called=_called(turn, draft)
        )
    return events


def set_aside(
    entries: Sequence[Entry], turn: Turn, draft: ReplyDraft | None, reason: str, known: Mapping[str, str]
) -> list[Event]:
    """The events that set aside a turn which kills its worker. `known` are result texts by call id."""
    assert turn.id is not None, "only an open turn is set aside"
    results = [close_call(turn, call, known.get(call.id, "")) for call in turn.open_calls]
    rest = msgspec.structs.replace(turn, open_calls=())
    return [
        *_reopening(entries),
        Quarantined(reason=reason, turn_id=turn.id),
        *_streamed(turn, draft),
        *results,
        *close(
            rest,
            outcome="failed",
            reason=reason,
            code=InQuarantine.code,
            usage=spent(entries, turn.id),
            called=_called(turn, draft),
        ),
    ]


def _streamed(turn: Turn, draft: ReplyDraft | None) -> list[Event]:
    """The streamed text of a reply that was not committed."""
    if draft is None or draft.turn_id != turn.id or not draft.body:
        return []
    return [half_said(draft.turn_id, draft.body, draft.called)]


def _called(turn: Turn, draft: ReplyDraft | None) -> str:
    """The model that was asked when the worker died; empty if its draft was not saved yet."""
    return draft.called if draft is not None and draft.turn_id == turn.id else ""


def reason_of(turn: Turn, case: RecoveryCase, death: WorkerDeath) -> str:
    """The reason why a turn is set aside, for its user."""
    running = [call.name for call in turn.open_calls if call.id in turn.started]
    doing = f"while it ran {', '.join(running)}" if running else "while its next request was prepared"
    return (
        f"the worker died {case.deaths} times in a row {doing}, "
        f"the last time with no other turn at work in it ({death.evidence})"
    )
