"""Decides whether the context leaves room for another reply: enough, short (compact first), or none. Pure.

`measure_fill` reports how full the context is, for people.

Compaction starts at a share of the window, or earlier if the provider rejected a smaller context: then our estimate is
too low, or the window is smaller than configured.

Compaction does not repeat without need: the context must have grown by a tenth since, or the provider must have
rejected it again. A later turn also tries again if the summary failed, or if the context does not fit at all.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.engine.context.context import Context
from holdfast.engine.context.logged_compaction import CompactionAttempt, LoggedCompaction
from holdfast.engine.context.tokens import TokenEstimate, estimate_message
from holdfast.model.entry import Entry

DEFAULT_WINDOW = 128_000
"""Used if neither the settings nor the provider give a value."""
REFUSED_LIMIT = 0.8
"""The share of a rejected size at which the next compaction starts."""
REFUSED_TARGET = 0.5
TARGET = 0.6
"""The target size of the messages after a compaction, as a share of their limit: small enough to be worthwhile, large enough for the last few."""
REPLY_SHARE, REPLY_TOKENS = 8, 1_024
"""Reserved for the reply: an eighth of a small window, this many tokens of a large one."""
GROWTH = 10
"""The context has grown enough if it grew by the compaction limit divided by this."""
MAX_ATTEMPTS = 8
"""Compactions per turn while the provider keeps rejecting the context: each halves it, so 8 reduce a million tokens to 4,000."""
NO_GAIN = "no_gain"
TOO_LONG = "context_too_long"


class TokenBounds(msgspec.Struct, frozen=True):
    """Sizes in tokens: the window, the maximum context, and the limit at which compaction starts."""

    window: int
    max_context: int
    limit: int
    refused: int = 0
    """A size that the provider rejected; 0 if none."""

    def target(self, frame: int) -> int:
        """The target of a compaction, given the size of the system text and the tools."""
        aim = frame + int(max(0, self.limit - frame) * TARGET)
        return min(aim, int(self.refused * REFUSED_TARGET)) if self.refused else aim


class BudgetDecision(msgspec.Struct, frozen=True):
    kind: Literal["enough", "short", "none"]
    reason: str = ""
    code: str = ""


ENOUGH, SHORT = BudgetDecision("enough"), BudgetDecision("short")


def bounds(window: int, compact_at: float, refused_tokens: int = 0) -> TokenBounds:
    max_context = window - min(window // REPLY_SHARE, REPLY_TOKENS)
    limit = min(int(window * compact_at), max_context)
    if refused_tokens:
        limit = min(limit, int(refused_tokens * REFUSED_LIMIT))
    return TokenBounds(window, max_context, limit, refused_tokens)


def decide(context: Context, frame: int, within: TokenBounds, turn_id: str) -> BudgetDecision:
    """Whether the model can be called now. `frame` is the size of the system text and the tools."""
    size, last = context.estimate_size(frame), context.last_attempt
    ours = last if last is not None and last.turn_id == turn_id else None
    if context.refused is not None:
        if ours is not None and (ours.code or ours.count >= MAX_ATTEMPTS):
            return _no_room(context.refused, ours)
        return SHORT
    if ours is not None and ours.code and ours.refused_tokens:
        return _no_room("the provider refused the context as too long", ours)
    if size.tokens <= within.limit:
        return ENOUGH
    if (problem := _explain_hopeless(context, frame, within)) is not None:
        return BudgetDecision("none", problem, TOO_LONG)
    if _may_compact(last, turn_id, size, within):
        return SHORT
    if size.lower_bound > within.max_context:
        return _no_room(f"the context takes about {size.tokens:,} tokens, and the window holds {within.window:,}", last)
    return ENOUGH


def _may_compact(last: CompactionAttempt | None, turn_id: str, size: TokenEstimate, within: TokenBounds) -> bool:
    if last is None or size.tokens >= last.tokens + max(1, within.limit // GROWTH):
        return True
    # In another turn a failed model may be available again, and a context that does not fit must be compacted.
    return last.turn_id != turn_id and (last.code not in ("", NO_GAIN) or size.tokens > within.max_context)


def _explain_hopeless(context: Context, frame: int, within: TokenBounds) -> str | None:
    """Why no compaction can help, if so: the parts that must stay whole are too large."""
    said = estimate_message(context.messages[context.newest]) if context.newest is not None else 0
    if frame > within.max_context:
        return (
            f"the system text and the tools alone take about {frame:,} tokens, and the window holds {within.window:,}"
        )
    # An estimate, so use its lower bound: near the limit the provider decides.
    if (frame + said) * 3 // 4 > within.max_context:
        return (
            f"the newest message alone takes about {said:,} tokens, and the window holds {within.window:,}; "
            "send it in smaller parts, or choose a model with a larger window"
        )
    return None


def _no_room(what: str, last: CompactionAttempt | None) -> BudgetDecision:
    if last is None or not last.code:
        return BudgetDecision("none", f"{what}; it could not be made smaller", TOO_LONG)
    code = TOO_LONG if last.code == NO_GAIN else last.code
    return BudgetDecision("none", f"{what}; it could not be made smaller: {last.reason}", code)


class ContextFill(msgspec.Struct, frozen=True):
    """Sizes in tokens: the provider's count for the last reply plus an estimate of what was added since."""

    epoch: int
    tokens: int
    window: int
    limit: int
    """The size at which compaction starts."""
    last: LoggedCompaction | None
    """The compaction in effect."""
    failed: CompactionAttempt | None
    """The latest attempt, if it failed."""

    @property
    def share(self) -> float:
        return self.tokens / self.window

    @property
    def next(self) -> str:
        """What happens to the context next, in a phrase."""
        if self.tokens <= self.limit:
            return f"it is compacted at {self.limit:,} tokens"
        if self.failed is not None and self.failed.code == NO_GAIN:
            return "it is compacted when there is more to gain, or when it no longer fits"
        return "it is compacted before the next model call"


def measure_fill(entries: Sequence[Entry], window: int, compact_at: float) -> ContextFill:
    context = Context(entries)
    attempt = context.last_attempt
    return ContextFill(
        epoch=context.epoch,
        tokens=context.estimate_size(0).tokens,
        window=window,
        limit=bounds(window, compact_at, context.refused_tokens).limit,
        last=context.compaction,
        failed=attempt if attempt is not None and attempt.code else None,
    )
