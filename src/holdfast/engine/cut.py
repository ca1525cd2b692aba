"""What a compaction takes out of the context, decided before any model is asked. Pure.

First the results of tools are thinned that are older than the last few messages; if that is enough, nobody has to
write a summary. Otherwise everything is summed up but the last messages, as many as fit, down to none. A call is
never parted from its result. The newest words of the user stay whole: if the work on them is too long to be shown with
them, they are pinned, and the summary tells of the work.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast.engine import size
from holdfast.engine.context import Context
from holdfast.engine.thin import thin
from holdfast.engine.view import find, place_behind, show, with_company
from holdfast.model.event import Compacted
from holdfast.model.message import Message, ToolResult

GAIN = 0.8
"""A context that is not smaller than this share of what it was has not been compacted. Where it must become smaller, because
it does not fit, the system text and the tools do not count: nothing can be done about them."""
THINNED_TO = 600
"""Characters of an old result that are worth keeping before anybody sums up."""
LEVELS = (4_000, 1_500, 600, 200)
"""How long results of the turn in hand may be, if they do not fit whole."""
SUMMARY_SHARE, SUMMARY_MOST, SUMMARY_LEAST = 8, 4_000, 150
"""A summary may take an eighth of the window, and a third of what it stands for, but never more than a few pages."""
FRAME = 80
"""Tokens of the words around a summary."""
PIN_SHARE = 3
"""Pinned messages may take the target divided by this; what is over is summed up, the oldest first."""


class Cut(msgspec.Struct, frozen=True):
    """What is to be done. Without `gone` the summary stays as it is, and results are thinned."""

    upto_seq: int
    gone: tuple[Message, ...]
    """What the new summary has to tell of, beside the old one."""
    pinned: tuple[int, ...]
    thinned_upto: int = 0
    thinned_to: int = 0
    budget: int = 0
    """Tokens of the new summary."""


class Measure(msgspec.Struct, frozen=True):
    """In what terms to plan: sizes are guesses, and `target` is a guess too."""

    frame: int
    target: int
    window: int
    keep_last: int
    by_hand: bool = False
    must: bool = False
    """Whether the model cannot be asked as it is."""

    def gains(self, before: int, after: int) -> bool:
        """Whether messages of one size in place of messages of another are worth it."""
        fixed = 0 if self.must else self.frame
        return fixed + after <= GAIN * (fixed + before)


def plan(context: Context, measure: Measure) -> Cut | None:
    """How to make the context smaller by a fifth at least; None if there is nothing to gain."""
    if not measure.by_hand and (thinned := _thin_old(context, measure)) is not None:
        return thinned
    cut = _sum_up(context, measure)
    if cut is not None and _gains(context, measure, cut):
        return cut
    if not measure.by_hand or measure.keep_last == 0:
        return None
    return plan(context, msgspec.structs.replace(measure, keep_last=0))


def after(context: Context, cut: Cut, summary: str) -> list[Message]:
    """What would be shown."""
    event = Compacted(
        epoch=0,
        upto_seq=cut.upto_seq,
        summary=summary,
        how="",
        thinned_upto=cut.thinned_upto,
        thinned_to=cut.thinned_to,
    )
    return show(context.messages, event, cut.pinned, 0)


def _gains(context: Context, measure: Measure, cut: Cut) -> bool:
    """Whether it can be worth it, with a summary that is half as long as it may be."""
    shown = size.of_messages(after(context, cut, _summary(context) if not cut.gone else ""))
    return measure.gains(context.guess(), shown + cut.budget // 2)


def _thin_old(context: Context, measure: Measure) -> Cut | None:
    messages, current = context.messages, context.compaction
    last = next((place for place in _places(context) if len(messages) - place >= measure.keep_last), None)
    if not last:
        return None
    upto = messages[last - 1].seq
    if current is not None and current.event.thinned_upto >= upto:
        return None
    pinned = current.event.pinned if current is not None else ()
    cut = Cut(context.upto_seq, (), tuple(pinned), upto, THINNED_TO)
    fits = measure.frame + size.of_messages(after(context, cut, _summary(context))) <= measure.target
    return cut if fits and _gains(context, measure, cut) else None


def _sum_up(context: Context, measure: Measure) -> Cut | None:
    messages = context.messages
    first = _first(context)
    newest = context.newest
    budget = _budget(context, measure)
    room = measure.target - measure.frame - FRAME - budget - _pinned_size(context, measure, len(messages))
    place, thinned_upto, thinned_to = _tail(context, room, newest, measure.keep_last)
    if place <= first and not thinned_upto:
        return None
    if place <= first:
        current = context.compaction.event.pinned if context.compaction is not None else ()
        return Cut(context.upto_seq, (), tuple(current), thinned_upto, thinned_to)
    upto = messages[place - 1].seq
    pinned = _pinned(context, measure, place)
    if newest is not None and newest < place:
        pinned = sorted({*pinned, messages[newest].seq})
    gone = (*_no_longer_pinned(context, pinned), *messages[first:place])
    return Cut(upto, gone, tuple(pinned), thinned_upto, thinned_to, budget)


def _tail(context: Context, room: int, newest: int | None, keep_last: int) -> tuple[int, int, int]:
    """Where what stays begins, and up to which event results are thinned to how many characters."""
    messages = context.messages
    end, first = _end(context), _first(context)
    last = next(_places(context), end)
    """Where the newest exchange begins."""
    whole = end if newest is None else newest
    if whole >= first:
        place = _reach(context, room, lambda n: size.of_message(messages[n]), min(whole, end - keep_last))
        if place <= whole:
            return place, 0, 0
        for chars in LEVELS:
            place = _reach(context, room, _thinned(messages, chars, last), whole)
            if place <= whole:
                return place, messages[last - 1].seq if last else 0, chars
    room -= size.of_message(messages[newest]) if newest is not None else 0
    for thinned_from in (last, end):
        for chars in LEVELS:
            place = _reach(context, room, _thinned(messages, chars, thinned_from), first)
            if place < end:
                return place, messages[thinned_from - 1].seq if thinned_from > place else 0, chars
    return end, 0, 0


def _thinned(messages: Sequence[Message], chars: int, upto: int) -> Callable[[int], int]:
    """The size of a message whose results are thinned, if it stands before the place."""

    def size_at(place: int) -> int:
        message = messages[place]
        return size.of_message(thin(message, chars) if place < upto else message)

    return size_at


def _reach(context: Context, room: int, size_at: Callable[[int], int], far_enough: int) -> int:
    """The earliest place from which on everything fits."""
    end = len(context.messages)
    total, reached, looked = 0, _end(context), end
    for place in _places(context):
        total += sum(size_at(n) for n in range(place, looked))
        looked = place
        if total > room:
            break
        reached = place
        if place <= far_enough:
            break
    return reached


def _places(context: Context) -> Iterator[int]:
    """Where the context may be cut, from the newest message backwards: at no place between a call and its result."""
    messages, end = context.messages, _end(context)
    owing: set[str] = set()
    for place in range(len(messages) - 1, _first(context) - 1, -1):
        message = messages[place]
        owing |= {part.call_id for part in message.parts if isinstance(part, ToolResult)} & context.call_ids
        owing -= {call.id for call in message.tool_calls}
        # A note that waited for results has the number of the last of them and stays with it.
        is_note = place > 0 and messages[place - 1].seq == message.seq
        if not owing and place <= end and not is_note:
            yield place


def _end(context: Context) -> int:
    """The last place where the context may be cut: behind everything, or before calls whose results are still to come."""
    messages = context.messages
    answered: set[str] = set()
    for place in range(len(messages) - 1, -1, -1):
        answered |= {part.call_id for part in messages[place].parts if isinstance(part, ToolResult)}
        if messages[place].role == "assistant":
            owed = {call.id for call in messages[place].tool_calls} - answered
            return place if owed else len(messages)
    return len(messages)


def _first(context: Context) -> int:
    """The place of the first message that the summary does not stand for."""
    return place_behind(context.messages, context.upto_seq)


def _summary(context: Context) -> str:
    return context.compaction.event.summary if context.compaction is not None else ""


def _budget(context: Context, measure: Measure) -> int:
    stands_for = context.guess()
    return max(SUMMARY_LEAST, min(measure.window // SUMMARY_SHARE, SUMMARY_MOST, stands_for // 3))


def _pinned(context: Context, measure: Measure, place: int) -> list[int]:
    """What a person has pinned before the place, the newest first to be kept if it is too much."""
    messages = context.messages
    kept: list[int] = []
    room = measure.target // PIN_SHARE
    for seq in sorted(context.pins, reverse=True):
        at = find(messages, seq)
        if at is None or at >= place:
            continue
        room -= size.of_messages(with_company(messages, [seq]))
        if room < 0:
            break
        kept.append(seq)
    return sorted(kept)


def _pinned_size(context: Context, measure: Measure, place: int) -> int:
    return size.of_messages(with_company(context.messages, _pinned(context, measure, place)))


def _no_longer_pinned(context: Context, pinned: Sequence[int]) -> list[Message]:
    """What stood beside the old summary and will not stand beside the new one: that has to tell of it."""
    if context.compaction is None:
        return []
    old = set(context.compaction.event.pinned) - set(pinned)
    return [message for message in with_company(context.messages, old) if message.seq <= context.upto_seq]
