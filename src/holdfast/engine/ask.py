"""One call of the model: stream, keep drafts, commit the reply."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing

import msgspec

from holdfast.engine.hand import Hand
from holdfast.engine.together import beside
from holdfast.model.asking import Delta, ReasoningDelta, Reply, Request, Restarted, TextDelta
from holdfast.model.entry import Entry
from holdfast.model.errors import BadReply, ContextTooLong, ProviderFailed, Unreachable
from holdfast.model.event import Compacted, CompactionFailed, Event, ModelSaid, ReplyRestarted, TurnEnded, Usage
from holdfast.model.message import Part, ToolCall
from holdfast.model.turn import half_said
from holdfast.store import log

AskModel = Callable[[Request], AsyncIterator[Delta | Restarted | Reply]]
"""The chosen model with its retries and fallbacks: deltas, then one Reply, or a ProviderFailed."""

DRAFT_SECONDS = 0.5
"""How much of a streamed reply a crash may cost, as promised."""
WATCHED_SECONDS = 0.1
"""The same while somebody is shown only what is safe: often enough to read along."""
WATCHED_LENGTH = 20_000
"""Characters beyond which a draft, which is written whole each time, is no longer written that often."""


class Asking(msgspec.Struct, frozen=True):
    """How the model is asked."""

    model: str
    system: str
    ask: AskModel
    step_seconds: float


async def ask(hand: Hand, asking: Asking, request: Request) -> None:
    """Ask for the next reply and commit it; one without calls ends the turn in the same transaction.

    A failure that the provider names ends the turn as failed, with what was said kept; but a context that is too
    long is only noted: it can be compacted.
    """
    try:
        reply = await _reply(hand, asking, request)
    except ContextTooLong as e:
        if hand.said:
            await _begin_anew(hand, str(e))
        hand.context.refused = str(e)
        return
    except ProviderFailed as e:
        await _give_up(hand, e)
        return
    said = ModelSaid(
        turn_id=_turn_id(hand),
        parts=unique_calls(reply.parts, hand.context.call_ids),
        model=reply.model,
        finish=reply.finish,
        usage=reply.usage,
    )
    calls = any(isinstance(part, ToolCall) for part in said.parts)
    if calls or any(item.mode == "steer" for item in hand.waiting):
        await hand.commit([said], lambda tx: log.drop_draft(tx, hand.id))
        hand.said = ""
        if not calls:
            await hand.join_steering()  # the turn goes on: they are owed a reply
    else:
        usage = add(spent(hand.entries, said.turn_id), reply.usage)
        await hand.end_turn([said, TurnEnded(turn_id=said.turn_id, outcome="done", usage=usage)])


async def _reply(hand: Hand, asking: Asking, request: Request) -> Reply:
    hand.said = ""
    try:
        async with asyncio.timeout(asking.step_seconds):
            return await beside(_stream(hand, asking.ask(request)), _keep_drafts(hand))
    except TimeoutError as e:
        raise Unreachable(f"the model did not finish its reply within {asking.step_seconds:.0f} s") from e


async def _stream(hand: Hand, stream: AsyncIterator[Delta | Restarted | Reply]) -> Reply:
    async with aclosing(stream) as items:  # type: ignore[type-var] # every provider's stream is an async generator
        async for item in items:
            match item:
                case TextDelta():
                    hand.said += item.text
                    hand.stream("text", item.text)
                case ReasoningDelta():
                    hand.stream("reasoning", item.text)
                case Restarted():
                    await _begin_anew(hand, item.reason)
                case Reply():
                    return item
    raise BadReply("the model's stream ended without a reply")


async def _begin_anew(hand: Hand, reason: str) -> None:
    """Throw the reply so far away. What was shown of it as safe stays on record: a stream that told it can be read again."""
    hand.said = ""
    if hand.kept:
        restarted = ReplyRestarted(turn_id=_turn_id(hand), text=hand.kept, reason=reason)
        await hand.commit([restarted], lambda tx: log.drop_draft(tx, hand.id))
    hand.stream("restarted", reason)


async def _keep_drafts(hand: Hand) -> None:
    """Keep the text so far while it grows, and look for input while it does not."""
    kept = ""
    while True:
        is_watched = hand.ground.bus.wants_kept(hand.id) and len(kept) < WATCHED_LENGTH
        await asyncio.sleep(WATCHED_SECONDS if is_watched else DRAFT_SECONDS)
        if hand.said != kept:
            kept = hand.said
            await hand.keep_draft(kept)
        else:
            await hand.look_for_input()


async def _give_up(hand: Hand, error: ProviderFailed) -> None:
    turn_id = _turn_id(hand)
    events: list[Event] = [half_said(turn_id, hand.said)] if hand.said else []
    events.append(
        TurnEnded(
            turn_id=turn_id, outcome="failed", reason=str(error), code=error.code, usage=spent(hand.entries, turn_id)
        )
    )
    await hand.end_turn(events)


def unique_calls(parts: Sequence[Part], used: Collection[str]) -> tuple[Part, ...]:
    """The parts with call ids that no earlier call of the session has: some servers number their calls from 0 each time."""
    seen = set(used) if any(isinstance(part, ToolCall) for part in parts) else set()
    unique: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            fresh, count = part.id, 1
            while not fresh or fresh in seen:
                count += 1
                fresh = f"{part.id or 'call'}-{count}"
            seen.add(fresh)
            unique.append(msgspec.structs.replace(part, id=fresh))
        else:
            unique.append(part)
    return tuple(unique)


def spent(entries: Sequence[Entry], turn_id: str) -> Usage:
    """What the turn has cost so far."""
    total = Usage()
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, ModelSaid | Compacted | CompactionFailed) and event.turn_id == turn_id:
            total = add(total, event.usage)
        elif getattr(event, "turn_id", turn_id) != turn_id:
            break
    return total


def add(one: Usage, other: Usage) -> Usage:
    known = [usage.cost for usage in (one, other) if usage.cost is not None]
    return Usage(
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        reasoning=one.reasoning + other.reasoning,
        cost=sum(known) if known else None,
    )


def _turn_id(hand: Hand) -> str:
    assert hand.turn.id is not None, "the model is asked only within a turn"
    return hand.turn.id
