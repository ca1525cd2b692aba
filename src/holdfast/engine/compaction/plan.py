"""Plans what a compaction removes from the context, before any model is called. Pure.

First it truncates tool results that are older than the last few messages; if that suffices, no summary is needed.
Otherwise the summary replaces everything except the last messages, as many as fit, possibly none. A call is never
separated from its result. The newest user message stays whole: if the work on it is too long, the message is pinned and
the summary covers the work.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast.engine.context.context import Context
from holdfast.engine.context.tokens import estimate_message, estimate_messages, estimate_text
from holdfast.engine.context.truncate import truncate_results
from holdfast.engine.context.view import build_view, find_index, index_after, with_exchanges
from holdfast.model.event import Compacted
from holdfast.model.message import Message, ToolResult
from holdfast.model.plan import checklist

GAIN = 0.8
"""A compaction must shrink the context to less than this share. If the context does not fit,
the system text and the tools are left out of the comparison, because they cannot shrink."""
OLD_RESULT_CHARS = 600
"""Characters of an old result that are kept before summarizing."""
LEVELS = (4_000, 1_500, 600, 200)
"""Length limits for results of the current turn if they do not fit whole."""
SUMMARY_SHARE, SUMMARY_MOST, SUMMARY_LEAST = 8, 4_000, 150
"""A summary may take an eighth of the window and a third of what it replaces, but at most a few pages."""
FRAME = 80
"""Tokens of the text around a summary."""
PIN_SHARE = 3
"""Pinned messages may take the target divided by this; the rest is summarized, oldest first."""


class CompactionPlan(msgspec.Struct, frozen=True):
    """What to do. Without `gone`, the summary stays unchanged and only results are truncated."""

    upto_seq: int
    gone: tuple[Message, ...]
    """The messages that the new summary must cover, besides the old summary."""
    pinned: tuple[int, ...]
    thinned_upto: int = 0
    thinned_to: int = 0
    budget: int = 0
    """The token limit of the new summary."""


class PlanMeasure(msgspec.Struct, frozen=True):
    """How sizes are measured: all of them, including `target`, are estimates."""

    frame: int
    target: int
    window: int
    keep_last: int
    manual: bool = False
    must_shrink: bool = False
    """Whether the context does not fit at all."""

    def gains(self, before: int, after: int) -> bool:
        """Whether replacing messages of one size by messages of another is worthwhile."""
        fixed = 0 if self.must_shrink else self.frame
        return fixed + after <= GAIN * (fixed + before)


def plan(context: Context, measure: PlanMeasure) -> CompactionPlan | None:
    """A plan that shrinks the context by at least a fifth; None if there is none."""
    if not measure.manual and (truncated := _plan_truncation(context, measure)) is not None:
        return truncated
    planned = _plan_summary(context, measure)
    if planned is not None and _gains(context, measure, planned):
        return planned
    if not measure.manual or measure.keep_last == 0:
        return None
    return plan(context, msgspec.structs.replace(measure, keep_last=0))


def after(context: Context, planned: CompactionPlan, summary: str) -> list[Message]:
    """The view that the plan would produce."""
    event = Compacted(
        epoch=0,
        upto_seq=planned.upto_seq,
        summary=summary,
        how="",
        thinned_upto=planned.thinned_upto,
        thinned_to=planned.thinned_to,
        plan=context.plan_at(planned.upto_seq),
        goal=context.goal,
    )
    return build_view(context.messages, event, planned.pinned, 0)


def _gains(context: Context, measure: PlanMeasure, planned: CompactionPlan) -> bool:
    """Whether the plan can be worthwhile with a summary of half the maximum length."""
    shown = estimate_messages(after(context, planned, _summary(context) if not planned.gone else ""))
    return measure.gains(context.estimate_messages(), shown + planned.budget // 2)


def _plan_truncation(context: Context, measure: PlanMeasure) -> CompactionPlan | None:
    messages, current = context.messages, context.compaction
    last = next((index for index in _cut_indexes(context) if len(messages) - index >= measure.keep_last), None)
    if not last:
        return None
    upto = messages[last - 1].seq
    if current is not None and current.event.thinned_upto >= upto:
        return None
    planned = CompactionPlan(context.upto_seq, (), tuple(sorted(context.shown_pins)), upto, OLD_RESULT_CHARS)
    fits = measure.frame + estimate_messages(after(context, planned, _summary(context))) <= measure.target
    return planned if fits and _gains(context, measure, planned) else None


def _plan_summary(context: Context, measure: PlanMeasure) -> CompactionPlan | None:
    messages = context.messages
    first = _first(context)
    newest = context.newest
    budget = _budget(context, measure)
    frame = FRAME + _checklist_size(context)
    room = measure.target - measure.frame - frame - budget - _pinned_size(context, measure, len(messages))
    index, thinned_upto, thinned_to = _find_tail(context, room, newest, measure.keep_last)
    if index <= first and not thinned_upto:
        return None
    if index <= first:
        return CompactionPlan(context.upto_seq, (), tuple(sorted(context.shown_pins)), thinned_upto, thinned_to)
    upto = messages[index - 1].seq
    pinned = _pinned(context, measure, index)
    if newest is not None and newest < index:
        pinned = sorted({*pinned, messages[newest].seq})
    gone = (*_no_longer_pinned(context, pinned), *messages[first:index])
    return CompactionPlan(upto, gone, tuple(pinned), thinned_upto, thinned_to, budget)


def _checklist_size(context: Context) -> int:
    """The tokens of the session's plan, which is shown with the summary."""
    last = context.messages[-1].seq if context.messages else 0
    return estimate_text(checklist(context.plan_at(last)))


def _find_tail(context: Context, room: int, newest: int | None, keep_last: int) -> tuple[int, int, int]:
    """The index of the first message that stays, and up to which event results are truncated to how many characters."""
    messages = context.messages
    end, first = _end(context), _first(context)
    last = next(_cut_indexes(context), end)
    """The index of the newest exchange."""
    whole = end if newest is None else newest
    if whole >= first:
        index = _extend_back(context, room, lambda n: estimate_message(messages[n]), min(whole, end - keep_last))
        if index <= whole:
            return index, 0, 0
        for chars in LEVELS:
            index = _extend_back(context, room, _truncated_size(messages, chars, last), whole)
            if index <= whole:
                return index, messages[last - 1].seq if last else 0, chars
    room -= estimate_message(messages[newest]) if newest is not None else 0
    for truncated_before in (last, end):
        for chars in LEVELS:
            index = _extend_back(context, room, _truncated_size(messages, chars, truncated_before), first)
            if index < end:
                return index, messages[truncated_before - 1].seq if truncated_before > index else 0, chars
    return end, 0, 0


def _truncated_size(messages: Sequence[Message], chars: int, upto: int) -> Callable[[int], int]:
    """The size of a message; before the index, its results are truncated."""

    def size_at(index: int) -> int:
        message = messages[index]
        return estimate_message(truncate_results(message, chars) if index < upto else message)

    return size_at


def _extend_back(context: Context, room: int, size_at: Callable[[int], int], stop_at: int) -> int:
    """The lowest index from which everything fits."""
    end = len(context.messages)
    total, reached, counted_from = 0, _end(context), end
    for index in _cut_indexes(context):
        total += sum(size_at(n) for n in range(index, counted_from))
        counted_from = index
        if total > room:
            break
        reached = index
        if index <= stop_at:
            break
    return reached


def _cut_indexes(context: Context) -> Iterator[int]:
    """The indexes at which the context may be cut, newest first: never between a call and its result."""
    messages, end = context.messages, _end(context)
    unanswered: set[str] = set()
    for index in range(len(messages) - 1, _first(context) - 1, -1):
        message = messages[index]
        unanswered |= {part.call_id for part in message.parts if isinstance(part, ToolResult)} & context.call_ids
        unanswered -= {call.id for call in message.tool_calls}
        # A note that waited for results has the number of the last result and stays with it.
        is_note = index > 0 and messages[index - 1].seq == message.seq
        if not unanswered and index <= end and not is_note:
            yield index


def _end(context: Context) -> int:
    """The last index for a cut: at the end, or before calls that have no results yet."""
    messages = context.messages
    answered: set[str] = set()
    for index in range(len(messages) - 1, -1, -1):
        answered |= {part.call_id for part in messages[index].parts if isinstance(part, ToolResult)}
        if messages[index].role == "assistant":
            pending = {call.id for call in messages[index].tool_calls} - answered
            return index if pending else len(messages)
    return len(messages)


def _first(context: Context) -> int:
    """The index of the first message that the summary does not cover."""
    return index_after(context.messages, context.upto_seq)


def _summary(context: Context) -> str:
    return context.compaction.event.summary if context.compaction is not None else ""


def _budget(context: Context, measure: PlanMeasure) -> int:
    replaced = context.estimate_messages()
    return max(SUMMARY_LEAST, min(measure.window // SUMMARY_SHARE, SUMMARY_MOST, replaced // 3))


def _pinned(context: Context, measure: PlanMeasure, index: int) -> list[int]:
    """The pinned messages before the index; the newest are kept first if they are too large."""
    messages = context.messages
    kept: list[int] = []
    room = measure.target // PIN_SHARE
    for seq in sorted(context.pins, reverse=True):
        at = find_index(messages, seq)
        if at is None or at >= index:
            continue
        room -= estimate_messages(with_exchanges(messages, [seq]))
        if room < 0:
            break
        kept.append(seq)
    return sorted(kept)


def _pinned_size(context: Context, measure: PlanMeasure, index: int) -> int:
    return estimate_messages(with_exchanges(context.messages, _pinned(context, measure, index)))


def _no_longer_pinned(context: Context, pinned: Sequence[int]) -> list[Message]:
    """Messages in view beside the old summary but not beside the new one: the new summary must cover them."""
    if context.compaction is None:
        return []
    old = set(context.compaction.event.pinned) - set(pinned)
    return [message for message in with_exchanges(context.messages, old) if message.seq <= context.upto_seq]
