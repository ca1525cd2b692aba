"""The state of the current turn, derived from the log: open calls, and the events that close the turn. Pure."""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import (
    ChildEnded,
    Event,
    GoalChecked,
    ModelSaid,
    RequestOptions,
    ToolCheckpointed,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Outcome, Text, ToolCall

NOTHING = Usage()
DELEGATING = frozenset({"delegate"})
"""Tools whose calls do not work in the process of their worker, and so cannot be the cause of its death."""
FORKED = "forked"
"""The code of a turn that a fork ended: it did not fail, and its duration is meaningless."""
ABSENT = "The client was asked to run this call and gave no result."
NOT_RUN = "Not run: the turn ended before this call was started."
TOO_MANY = "Not run: the request allows {} calls of tools, and they are used up. Answer without this one."
UNKNOWN = "The outcome of this call is unknown: the work stopped before a result was recorded. It may or may not have taken effect."


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the latest turn."""

    id: str | None = None
    """The open turn; None when the session waits for input."""
    open_calls: tuple[ToolCall, ...] = ()
    """Calls of the model without a result, in order."""
    started: frozenset[str] = frozenset()
    """The ids of open calls that may have taken effect."""
    delegated: frozenset[str] = frozenset()
    """The ids of started calls that only create a child session and wait for it."""
    checkpoints: tuple[tuple[str, str], ...] = ()
    """How open calls can be continued: the call's id and what its tool wrote."""
    owes_reply: bool = False
    """Whether the model has to reply to something."""
    steps: int = 0
    """Model calls of the open turn so far."""
    tool_calls: int = 0
    """Calls of the server's own tools that the open turn has started so far."""
    terms: RequestOptions = RequestOptions()
    """The options of the request that started the turn."""

    @property
    def acting(self) -> frozenset[str]:
        """The started calls that work in the worker's own process."""
        return self.started - self.delegated

    @property
    def only_delegates(self) -> bool:
        """Whether calls have started, and all of them only wait for child sessions: then no recovery is being prepared either."""
        return bool(self.started) and not self.acting

    def checkpoint(self, call_id: str) -> str:
        """How the call can be continued; empty if it cannot."""
        return dict(self.checkpoints).get(call_id, "")

    def lost_calls(self, repeatable: Callable[[str], bool]) -> tuple[ToolCall, ...]:
        """Started calls that must not run again. A call of a tool that changes nothing may, or one with a checkpoint."""
        return tuple(
            call
            for call in self.open_calls
            if call.id in self.started and not repeatable(call.name) and not self.checkpoint(call.id)
        )


def fold_turn(turn: Turn, event: Event) -> Turn:
    """The state of the turn after one more event."""
    match event:
        case TurnStarted():
            return Turn(id=event.turn_id, terms=event.terms)
        case UserSaid():
            return msgspec.structs.replace(turn, owes_reply=True)
        case ModelSaid():
            calls = tuple(part for part in event.parts if isinstance(part, ToolCall))
            owes = event.partial and turn.owes_reply
            return msgspec.structs.replace(
                turn,
                open_calls=calls,
                started=frozenset(),
                delegated=frozenset(),
                checkpoints=(),
                owes_reply=owes,
                steps=turn.steps + 1,
            )
        case ToolCheckpointed():
            kept = tuple(one for one in turn.checkpoints if one[0] != event.call_id)
            added = ((event.call_id, event.state),) if event.state else ()
            return msgspec.structs.replace(turn, checkpoints=kept + added)
        case ToolStarted():
            count = turn.tool_calls + (event.attempt == 1)
            delegated = turn.delegated | ({event.call_id} if event.name in DELEGATING else frozenset())
            started = turn.started | {event.call_id}
            return msgspec.structs.replace(turn, started=started, delegated=delegated, tool_calls=count)
        case ChildEnded() | GoalChecked() if turn.id is not None:
            return msgspec.structs.replace(turn, owes_reply=True)
        case ToolEnded():
            left = tuple(call for call in turn.open_calls if call.id != event.call_id)
            return msgspec.structs.replace(
                turn, open_calls=left, started=turn.started - {event.call_id}, owes_reply=True
            )
        case TurnEnded():
            return Turn()
        case _:
            return turn


def turn_of(entries: Sequence[Entry]) -> Turn:
    """The state of the latest turn. Does not read the entries before it."""
    start = len(entries)
    while start > 0 and not isinstance(entries[start - 1].event, TurnStarted):
        start -= 1
    turn = Turn()
    for entry in entries[max(start - 1, 0) :]:
        turn = fold_turn(turn, entry.event)
    return turn


def closing_events(entries: Sequence[Entry]) -> list[Event]:
    """The events that close an abandoned turn, so that the log stays well-formed."""
    return close(turn_of(entries), outcome="cancelled", reason="the session was left in mid-turn")


def end_of_fork(entries: Sequence[Entry]) -> list[Event]:
    """The events that close the turn at which a fork branches off. After a complete reply the turn counts as done."""
    turn = turn_of(entries)
    if turn.id is not None and turn.steps and not turn.open_calls and not turn.owes_reply:
        return [TurnEnded(turn_id=turn.id, outcome="done", code=FORKED)]
    return close(turn, outcome="cancelled", reason="the session was forked here, in mid-turn", code=FORKED)


def may_call_tools(turn: Turn) -> bool:
    """Whether the turn may run further calls of the server's own tools."""
    return turn.terms.max_tool_calls is None or turn.tool_calls < turn.terms.max_tool_calls


def close(
    turn: Turn, *, outcome: TurnOutcome, reason: str, code: str = "", usage: Usage = NOTHING, called: str = ""
) -> list[Event]:
    """The events that end the turn now: each open call gets exactly one result. `called` is the model that did not reply."""
    if turn.id is None:
        return []
    results: list[Event] = [close_call(turn, call) for call in turn.open_calls]
    ended = TurnEnded(turn_id=turn.id, outcome=outcome, reason=reason, code=code, usage=usage, called=called)
    return [*results, ended]


def half_said(turn_id: str, text: str, called: str) -> ModelSaid:
    """The event for the text of a reply of a model that was cut off."""
    return ModelSaid(turn_id=turn_id, parts=(Text(text),), finish="cut", partial=True, called=called)


def close_call(turn: Turn, call: ToolCall, known: str = "") -> ToolEnded:
    """The result of a call that will not run or whose outcome is unknown; `known` is what is known about it."""
    assert turn.id is not None, "calls belong to a turn"
    outcome: Outcome = "unknown" if call.id in turn.started else "failed"
    text = known or (UNKNOWN if call.id in turn.started else NOT_RUN)
    return ToolEnded(turn_id=turn.id, call_id=call.id, name=call.name, outcome=outcome, parts=(Text(text),))


def absent(turn_id: str, call: ToolCall) -> ToolEnded:
    """The result of a client-side call for which the client sent no result."""
    return ToolEnded(turn_id=turn_id, call_id=call.id, name=call.name, outcome="unknown", parts=(Text(ABSENT),))


def _unpriced(usage: Usage) -> int:
    """How many calls of the sum have no known cost."""
    has_call = usage.cost is None and bool(usage.tokens_in or usage.tokens_out)
    return usage.unpriced or int(has_call)


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum of two; the cost is unknown only if both are."""
    known = [usage.cost for usage in (one, other) if usage.cost is not None]
    return Usage(
        unpriced=_unpriced(one) + _unpriced(other),
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        reasoning=one.reasoning + other.reasoning,
        cost=sum(known) if known else None,
    )
