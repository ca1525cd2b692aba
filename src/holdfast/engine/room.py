"""Whether the context leaves room for another reply: enough, short (compact first), or none. Pure.

Compaction begins at a share of the window, or earlier if the provider has refused a smaller context: then our
count is too low, or the window is smaller than we were told, and that refusal is the better judge.

No compaction follows another for nothing: the context must have grown by a tenth since, or the provider
have refused it again. In a later turn it is also tried again if the summary could not be written, or if the context
does not fit at all.
"""

from typing import Literal

import msgspec

from holdfast.engine.context import Context, Try
from holdfast.engine.size import of_message
from holdfast.engine.weight import Weight

DEFAULT_WINDOW = 128_000
"""When neither the settings nor the provider know better."""
REFUSED_LIMIT = 0.8
"""Of a size that the provider refused, where the next compaction begins."""
REFUSED_TARGET = 0.5
TARGET = 0.6
"""What a compaction leaves of the messages, as a share of what they may take: small enough to be worth it, enough for the last few."""
REPLY_SHARE, REPLY_TOKENS = 8, 1_024
"""Kept free for the reply: an eighth of a small window, of a large one so many tokens."""
GROWTH = 10
"""The context has really grown by the size at which compaction begins, divided by this."""
MOST_TRIES = 8
"""Compactions of one turn whose context the provider goes on refusing: each halves it, so 8 lead from a million tokens to 4,000."""
NO_GAIN = "no_gain"
TOO_LONG = "context_too_long"


class Bounds(msgspec.Struct, frozen=True):
    """Sizes in tokens: what the model holds, what it can be shown at the most, and where compaction begins."""

    window: int
    most: int
    limit: int
    refused: int = 0
    """A size that the provider has refused; 0 if it has not."""

    def target(self, frame: int) -> int:
        """What a compaction aims at, if the system text and the tools take so much of it."""
        aim = frame + int(max(0, self.limit - frame) * TARGET)
        return min(aim, int(self.refused * REFUSED_TARGET)) if self.refused else aim


class Room(msgspec.Struct, frozen=True):
    kind: Literal["enough", "short", "none"]
    reason: str = ""
    code: str = ""


ENOUGH, SHORT = Room("enough"), Room("short")


def bounds(window: int, compact_at: float, refused_tokens: int = 0) -> Bounds:
    most = window - min(window // REPLY_SHARE, REPLY_TOKENS)
    limit = min(int(window * compact_at), most)
    if refused_tokens:
        limit = min(limit, int(refused_tokens * REFUSED_LIMIT))
    return Bounds(window, most, limit, refused_tokens)


def judge(context: Context, frame: int, within: Bounds, turn_id: str) -> Room:
    """Whether the model can be asked now. `frame` is what the system text and the tools take."""
    weight, last = context.weigh(frame), context.last_try
    ours = last if last is not None and last.turn_id == turn_id else None
    if context.refused is not None:
        if ours is not None and (ours.code or ours.count >= MOST_TRIES):
            return _none(context.refused, ours)
        return SHORT
    if ours is not None and ours.code and ours.refused_tokens:
        return _none("the provider refused the context as too long", ours)
    if weight.tokens <= within.limit:
        return ENOUGH
    if (problem := _hopeless(context, frame, within)) is not None:
        return Room("none", problem, TOO_LONG)
    if _may_try(last, turn_id, weight, within):
        return SHORT
    if weight.least > within.most:
        return _none(f"the context takes about {weight.tokens:,} tokens, and the window holds {within.window:,}", last)
    return ENOUGH


def _may_try(last: Try | None, turn_id: str, weight: Weight, within: Bounds) -> bool:
    if last is None or weight.tokens >= last.tokens + max(1, within.limit // GROWTH):
        return True
    # In another turn a model that failed may be back, and what does not fit has to be tried.
    return last.turn_id != turn_id and (last.code not in ("", NO_GAIN) or weight.tokens > within.most)


def _hopeless(context: Context, frame: int, within: Bounds) -> str | None:
    """Why no compaction can help, if none can: what must be shown whole is too large."""
    said = of_message(context.messages[context.newest]) if context.newest is not None else 0
    if frame > within.most:
        return (
            f"the system text and the tools alone take about {frame:,} tokens, and the window holds {within.window:,}"
        )
    # A guess, so it is taken at the least it can be: the provider is the better judge of what is near.
    if (frame + said) * 3 // 4 > within.most:
        return (
            f"the newest message alone takes about {said:,} tokens, and the window holds {within.window:,}; "
            "say it in smaller pieces, or choose a model with a larger window"
        )
    return None


def _none(what: str, last: Try | None) -> Room:
    if last is None or not last.code:
        return Room("none", f"{what}; it could not be made smaller", TOO_LONG)
    code = TOO_LONG if last.code == NO_GAIN else last.code
    return Room("none", f"{what}; it could not be made smaller: {last.reason}", code)
