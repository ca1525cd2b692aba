"""The one loop that acts: it does what `next_step` says, commits, and looks again.

Each step is committed before the next begins. A crash therefore costs at most the step in hand, and
the next worker can tell a tool that never started from one that may have acted.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from holdfast.engine import brief, room, size
from holdfast.engine.ask import Asking, ask, spent
from holdfast.engine.compact import Compacting, compact, tidy_up
from holdfast.engine.hand import Frame, Hand
from holdfast.engine.room import ENOUGH, Room
from holdfast.engine.steps import Act, Ask, CloseUnknown, Compact, Finish, Step, next_step
from holdfast.engine.terms import offered, system_text, under
from holdfast.engine.together import stop
from holdfast.engine.toolcall import Acting, act
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, TurnEnded, TurnOutcome
from holdfast.model.turn import close, close_call, half_said

LOOK_SECONDS = 1.0
"""How soon a request to stop that came through another process is noticed while a tool runs."""


class Playing(msgspec.Struct, frozen=True):
    """All that a turn is played with."""

    asking: Asking
    acting: Acting
    max_steps: int
    turn_seconds: float
    compacting: Compacting | None = None
    """Without it the context is never compacted, and a model whose window is full ends the turn."""

    def repeatable(self, name: str) -> bool:
        try:
            return self.acting.toolbox.get(name).repeatable
        except Invalid:
            return False


async def play(hand: Hand, playing: Playing) -> bool:
    """Drive the open turn, and those that wait behind it, until none is left: True.

    False if the worker is about to leave and a turn was left open for the next one to take up.
    """
    turn_id, deadline = None, 0.0
    while (step := _next(hand, playing)) is not None:
        if hand.turn.id != turn_id:
            turn_id, deadline = hand.turn.id, hand.ground.clock.monotonic() + playing.turn_seconds
        if isinstance(step, Finish):
            await hand.end_turn([_ending(hand, step)])
        elif hand.pause.is_set():
            return False
        elif hand.stop.is_set():
            await hand.end_turn(_closing(hand, "interrupted", "the turn was interrupted"))
        elif hand.ground.clock.monotonic() > deadline:
            reason = f"the turn took longer than {playing.turn_seconds:.0f} s, which is the limit"
            await hand.end_turn(_closing(hand, "failed", reason, "turn_timeout"))
        else:
            await _do(hand, playing, step)
    return True


def _next(hand: Hand, playing: Playing) -> Step | None:
    return next_step(
        hand.turn,
        repeatable=playing.repeatable,
        max_steps=playing.max_steps,
        room=lambda: _room(hand, playing),
    )


def frame(hand: Hand, playing: Playing) -> Frame:
    """What goes with the turn's requests. It is put together once for as long as nothing changes: tools can be many."""
    terms, ours = hand.turn.terms, playing.acting.toolbox.specs()
    system = system_text(terms, hand.context.system, playing.asking.system)
    known = hand.frame
    if known is not None and known.terms is terms and known.ours == ours and known.system == system:
        return known
    tools = offered(terms, ours)
    if playing.compacting is not None:
        tools = brief.fitting(system, tools, playing.compacting.window)
    hand.frame = Frame(terms, ours, system, tools, size.of_frame(system, tools))
    return hand.frame


def _room(hand: Hand, playing: Playing) -> Room:
    """Whether the context leaves room for another reply."""
    context, compacting = hand.context, playing.compacting
    if compacting is None:
        return ENOUGH if context.refused is None else Room("none", context.refused, room.TOO_LONG)
    return room.judge(context, frame(hand, playing).tokens, compacting.bounds(context), hand.turn.id or "")


async def _compact(hand: Hand, playing: Playing) -> None:
    assert playing.compacting is not None, "nobody else says that room is short"
    outcome = await compact(hand, playing.compacting, frame(hand, playing).tokens)
    if outcome is not None:
        await hand.commit([outcome], tidy_up(outcome, hand.id))


async def _do(hand: Hand, playing: Playing, step: Ask | Compact | Act | CloseUnknown) -> None:
    """Take one step, or as much of it as is left before somebody asks the turn to stop."""
    match step:
        case CloseUnknown(calls):
            await hand.commit([close_call(hand.turn, call) for call in calls])
        case Act(calls):
            await unless_stopped(hand, act(hand, playing.acting, calls))
        case Compact():
            await unless_stopped(hand, _compact(hand, playing))
        case Ask():
            before = hand.session.seq
            await hand.join_steering()
            if hand.session.seq != before:
                return  # there may be no room for a reply any more
            assert hand.turn.id is not None, "the model is asked within a turn"
            around = frame(hand, playing)
            request = hand.context.request(
                hand.turn.id, model=playing.asking.model, system=around.system, tools=around.tools
            )
            await unless_stopped(hand, ask(hand, playing.asking, under(hand.turn.terms, request)))


async def unless_stopped(hand: Hand, work: Coroutine[Any, Any, None]) -> None:
    """Wait for the work, but no longer than until the turn is asked to stop."""
    task = asyncio.ensure_future(work)
    bell = asyncio.ensure_future(hand.stop.wait())
    try:
        while not task.done() and not hand.stop.is_set():
            await asyncio.wait({task, bell}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await hand.look_for_input()
        if task.done():
            task.result()
    finally:
        await stop(task, bell)


def _closing(hand: Hand, outcome: TurnOutcome, reason: str, code: str = "") -> list[Event]:
    """The end of a turn that is cut short: what was said stays, and every call gets its one result."""
    assert hand.turn.id is not None
    said: list[Event] = [half_said(hand.turn.id, hand.said)] if hand.said else []
    return [
        *said,
        *close(hand.turn, outcome=outcome, reason=reason, code=code, usage=spent(hand.entries, hand.turn.id)),
    ]


def _ending(hand: Hand, step: Finish) -> TurnEnded:
    assert hand.turn.id is not None
    usage = spent(hand.entries, hand.turn.id)
    return TurnEnded(
        turn_id=hand.turn.id,
        outcome=step.outcome,
        reason=step.reason,
        code=step.code,
        usage=usage,
        awaiting=step.awaiting,
    )
