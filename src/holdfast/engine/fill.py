"""How full a session's context is, how it was last compacted, and when it will be. Pure: read off the log."""

from collections.abc import Sequence

import msgspec

from holdfast.engine import room
from holdfast.engine.context import Context, Placed, Try
from holdfast.model.entry import Entry


class Fill(msgspec.Struct, frozen=True):
    """Sizes are in tokens, as the model counted them for its last reply, and guessed since."""

    epoch: int
    tokens: int
    window: int
    limit: int
    """Where compaction begins."""
    last: Placed | None
    """The compaction that is in force."""
    failed: Try | None
    """The newest attempt, if it failed."""

    @property
    def share(self) -> float:
        return self.tokens / self.window

    @property
    def next(self) -> str:
        """What will happen to the context, in a phrase."""
        if self.tokens <= self.limit:
            return f"it is compacted at {self.limit:,} tokens"
        if self.failed is not None and self.failed.code == room.NO_GAIN:
            return "it is compacted when there is more to gain, or when it no longer fits"
        return "it is compacted before the model is asked again"


def fill_of(entries: Sequence[Entry], window: int, compact_at: float) -> Fill:
    context = Context(entries)
    tried = context.last_try
    return Fill(
        epoch=context.epoch,
        tokens=context.weigh(0).tokens,
        window=window,
        limit=room.bounds(window, compact_at, context.refused_tokens).limit,
        last=context.compaction,
        failed=tried if tried is not None and tried.code else None,
    )
