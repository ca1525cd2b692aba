"""One call of the model: stream the reply, save drafts of it, commit it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing

import msgspec

from holdfast.engine.spending.meter import Meter
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.budget_question import may_continue
from holdfast.engine.turn.refused_input import blames_input, refused_input
from holdfast.model.entry import Entry
from holdfast.model.errors import BadReply, BudgetExceeded, ContextTooLong, HoldfastError, ProviderFailed, Unreachable
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    Event,
    ModelSaid,
    ReplyRestarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from holdfast.model.message import Part, ToolCall
from holdfast.model.provider import (
    AskModel,
    FallbackAsked,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    ReplyItem,
    Retrying,
    StreamRestarted,
    TextDelta,
)
from holdfast.model.turn import add_usage, half_said
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.tasks import LateHelper

DRAFT_SECONDS = 0.5
"""The longest part of a streamed reply that a crash may lose, as promised."""
WATCHED_SECONDS = 0.1
"""The same while a watcher is shown only durable text: often enough to read along."""
WATCHED_LENGTH = 20_000
"""Drafts longer than this are no longer saved that often, because each save writes the whole draft."""
SET_ASIDE = "This message was set aside: it stays in the log, and the model is not shown it again"


class ModelCallSettings(msgspec.Struct, frozen=True):
    """The settings of model calls."""

    model: str
    system: str
    ask: AskModel
    step_seconds: float
    meter: Meter | None = None
    """Checks and records calls; None if there are neither budgets nor records."""
    has_limits: bool = False
    """Whether there is a budget."""
    can_ask: bool = False
    """Whether the operator is there to be asked whether the budget of the session is raised."""


async def call_model(active: ActiveSession, settings: ModelCallSettings, request: ModelRequest) -> None:
    """Call the model and commit its reply; a reply without tool calls ends the turn in the same transaction.

    A failure of the provider ends the turn as failed, with the text so far kept. A context that is too long is only
    noted, because it can be compacted. Input that the provider refuses for its content is set aside; if that is only
    results of our tools, the turn continues.
    """
    try:
        reservation = await _reserve(active, settings, request)
    except BudgetExceeded as e:
        if settings.can_ask and settings.meter is not None and await may_continue(active, settings.meter, e):
            return  # the next step is the same call
        usage = spent(active.entries, _turn_id(active))
        ended = TurnEnded(turn_id=_turn_id(active), outcome="failed", reason=str(e), code=e.code, usage=usage)
        await active.end_turn([ended])
        return
    try:
        await _call(active, settings, request, reservation)
    finally:
        if settings.meter is not None and reservation:
            settings.meter.end(reservation)


async def _call(active: ActiveSession, settings: ModelCallSettings, request: ModelRequest, reservation: str) -> None:
    """Call the model for what is reserved, and commit its reply."""
    try:
        reply = await _metered_reply(active, settings, request, reservation)
    except ContextTooLong as e:
        if active.said:
            await restart_reply(active, str(e))
        active.context.refused = str(e)
        return
    except ProviderFailed as e:
        await _give_up(active, e)
        return
    said = ModelSaid(
        turn_id=_turn_id(active),
        parts=unique_calls(reply.parts, active.context.call_ids),
        model=reply.model,
        finish=reply.finish,
        usage=reply.usage,
        called=reply.called,
        reservation=reservation,
    )
    settle = _settlement(settings, reservation, reply)
    calls = any(isinstance(part, ToolCall) for part in said.parts)
    if calls or any(item.mode == "steer" for item in active.queued):
        await active.commit([said], lambda tx: log.delete_draft(tx, active.id), *settle)
        active.said = ""
        if not calls:
            await active.join_steering()  # the turn continues, to answer the steering input
    else:
        usage = add_usage(spent(active.entries, said.turn_id), reply.usage)
        await active.end_turn([said, TurnEnded(turn_id=said.turn_id, outcome="done", usage=usage)], *settle)


async def _reserve(active: ActiveSession, settings: ModelCallSettings, request: ModelRequest) -> str:
    if settings.meter is None or not (settings.has_limits or active.may_have_goal):
        return ""
    return await settings.meter.reserve(active.id, request, has_goal=active.may_have_goal)


def _settlement(
    settings: ModelCallSettings, reservation: str, reply: ModelReply
) -> list[Callable[[Transaction], object]]:
    """What belongs to the transaction that commits the reply."""
    if settings.meter is None or not reservation:
        return []
    return [settings.meter.settle(reservation, reply.usage.cost)]


async def _metered_reply(
    active: ActiveSession, settings: ModelCallSettings, request: ModelRequest, reservation: str
) -> ModelReply:
    """The reply. A call that breaks off once the model has begun to answer is counted with its estimate."""
    try:
        return await _reply(active, settings, request)
    except BaseException as e:
        if settings.meter is not None and reservation:
            has_output = bool(active.said) or not isinstance(e, HoldfastError)
            await settings.meter.end_unanswered(reservation, has_output=has_output)
        raise


async def _reply(active: ActiveSession, settings: ModelCallSettings, request: ModelRequest) -> ModelReply:
    active.said = active.notice = ""
    try:
        async with asyncio.timeout(settings.step_seconds):
            drafts = LateHelper(lambda: _save_drafts(active))
            active.asked = request.model
            reply = await drafts.run_beside(_stream(active, settings.ask(request)), after=_draft_interval(active))
    except TimeoutError as e:
        raise Unreachable(f"the model did not finish its reply within {settings.step_seconds:.0f} s") from e
    assert reply is not None, "drafts are saved until the reply ends"
    return reply


async def _stream(active: ActiveSession, stream: AsyncIterator[ReplyItem]) -> ModelReply:
    async with aclosing(stream) as items:  # type: ignore[type-var] # every provider's stream is an async generator
        async for item in items:
            match item:
                case TextDelta():
                    active.said += item.text
                    active.stream("text", item.text)
                case ReasoningDelta():
                    active.stream("reasoning", item.text)
                case FallbackAsked():
                    active.asked = item.model
                case StreamRestarted():
                    await restart_reply(active, item.reason)
                case Retrying():
                    active.notice = retry_notice(item)
                    active.stream("retrying", active.notice)
                case ModelReply():
                    return item
    raise BadReply("the model's stream ended without a reply")


def retry_notice(retrying: Retrying) -> str:
    """The failure and the time of the next attempt, on one line."""
    what = retrying.reason.partition(": try again")[0]
    return f"{what}; retrying in {retrying.seconds:.0f} s ({retrying.attempt}/{retrying.attempts})"


async def restart_reply(active: ActiveSession, reason: str) -> None:
    """Discard the reply so far. The part that was shown as durable is recorded, so that its stream can be replayed."""
    active.said = ""
    if active.kept:
        restarted = ReplyRestarted(turn_id=_turn_id(active), text=active.kept, reason=reason)
        await active.commit([restarted], lambda tx: log.delete_draft(tx, active.id))
    active.stream("restarted", reason)


async def _save_drafts(active: ActiveSession) -> None:
    """Save the text so far and the newest notice whenever they have changed."""
    kept, notice = "", ""
    while True:
        if (active.said, active.notice) != (kept, notice):
            kept, notice = active.said, active.notice
            await active.save_draft(kept)
        await asyncio.sleep(_draft_interval(active))


def _draft_interval(active: ActiveSession) -> float:
    is_watched = active.services.bus.wants_durable(active.id) and len(active.said) < WATCHED_LENGTH
    return WATCHED_SECONDS if is_watched else DRAFT_SECONDS


async def _give_up(active: ActiveSession, error: ProviderFailed) -> None:
    turn_id, reason = _turn_id(active), str(error)
    events: list[Event] = [half_said(turn_id, active.said, active.asked)] if active.said else []
    refused = (
        None if active.said or not blames_input(error) else refused_input(await _whole_log(active), turn_id, error)
    )
    if refused is not None:
        if refused.turn_goes_on:
            await active.commit([refused.event])
            return
        events.append(refused.event)
        reason = f"{reason}. {SET_ASIDE}"
    usage = spent(active.entries, turn_id)
    events.append(
        TurnEnded(turn_id=turn_id, outcome="failed", reason=reason, code=error.code, usage=usage, called=active.asked)
    )
    await active.end_turn(events)


async def _whole_log(active: ActiveSession) -> list[Entry]:
    return await active.services.database.read(log.read, active.id, last=active.seen)


def unique_calls(parts: Sequence[Part], used: Collection[str]) -> tuple[Part, ...]:
    """The parts with call ids that are unique in the session: some servers number their calls from 0 each time."""
    seen: set[str] = set()
    unique: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            fresh, count = part.id, 1
            while not fresh or fresh in seen or fresh in used:
                count += 1
                fresh = f"{part.id or 'call'}-{count}"
            seen.add(fresh)
            unique.append(msgspec.structs.replace(part, id=fresh))
        else:
            unique.append(part)
    return tuple(unique)


def spent(entries: Sequence[Entry], turn_id: str) -> Usage:
    """The usage of the newest turn so far. Events that are not of the turn may stand among its own."""
    total = Usage()
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, ModelSaid | Compacted | CompactionFailed) and event.turn_id == turn_id:
            total = add_usage(total, event.usage)
        elif isinstance(event, TurnStarted):
            break
    return total


def count_tokens(active: ActiveSession) -> int:
    """The tokens that the open turn has used."""
    usage = spent(active.entries, active.turn.id or "")
    return usage.tokens_in + usage.tokens_out


def _turn_id(active: ActiveSession) -> str:
    assert active.turn.id is not None, "the model is asked only within a turn"
    return active.turn.id
