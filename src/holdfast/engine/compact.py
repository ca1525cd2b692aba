"""Makes the context smaller and writes down how; the log stays whole.

Who decides what. `room` says when, `cut` says what goes, `summary` has it summed up in stored pieces, and this commits
one event: `compacted`, which changes what is shown from then on, or `compaction_failed`, which changes nothing
and says why. A crash before that commit leaves the context as it was and the finished pieces in the store.

Nothing here holds up another session: models are waited for, and what takes time is done on a thread. Words that come
meanwhile wait in the session's queue. Asking the turn to end ends this, too; a worker that is about to leave stops
after the piece in hand.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine import cut as cutting
from holdfast.engine import room, size
from holdfast.engine.context import Context, Placed
from holdfast.engine.cut import Cut, Measure
from holdfast.engine.hand import Hand
from holdfast.engine.room import NO_GAIN, Bounds
from holdfast.engine.summary import Author, Job, Left, NotWritten, Shelf, Written, write
from holdfast.model.event import Compacted, CompactionFailed, Usage
from holdfast.model.message import Message
from holdfast.store import chunks
from holdfast.store.chunks import Chunk
from holdfast.store.database import Transaction

SUMMARY_FAILED = "summary_failed"
MANY = 2_000
"""Messages that are planned with on a thread, so that nobody else has to wait."""
RATIO = (0.1, 4.0)
"""How far what a provider counts may be from what we guess, before we doubt the count."""
CAUTIOUS = 0.5
"""The same where we decide what fits: some count only part of what they are sent."""
NOTHING = Usage()
MECHANICAL = ("digest", "thinned")

Outcome = Compacted | CompactionFailed


class Compacting(msgspec.Struct, frozen=True):
    """How contexts are compacted."""

    window: int
    """Of the session's model, in tokens."""
    compact_at: float
    keep_last: int
    author: Author

    def bounds(self, context: Context) -> Bounds:
        return room.bounds(self.window, self.compact_at, context.refused_tokens)


async def compact(
    hand: Hand, compacting: Compacting, frame: int, *, about: str = "", by_hand: bool = False
) -> Outcome | None:
    """What to commit; None if the worker is about to leave. `frame` is what the system text and the tools take.

    Commits nothing itself but finished pieces of the summary.
    """
    context, turn_id = hand.context, hand.turn.id or ""

    def look() -> tuple[_Matter, Cut | None]:
        matter = _Matter(context, compacting, frame, turn_id)
        return matter, cutting.plan(context, matter.measure(by_hand=by_hand))

    matter, found = await asyncio.to_thread(look) if len(context.view) > MANY else look()
    if found is None:
        return matter.failed("there is nothing in it that could be made shorter by a fifth", NO_GAIN)
    if not found.gone:
        return matter.compacted(found, Written(matter.summary, "thinned", "", 0, NOTHING))
    try:
        written = await write(compacting.author, _job(context, found, about), _shelf(hand))
    except Left:
        return None
    except NotWritten as e:
        return matter.failed(f"no summary could be written: {e}", SUMMARY_FAILED, found.upto_seq, e.usage)
    return matter.compacted(found, written, about)


def tidy_up(outcome: Outcome, session_id: str) -> Callable[[Transaction], None]:
    """What belongs into the transaction that commits the outcome: finished pieces go when the summary stands."""

    def work(tx: Transaction) -> None:
        if isinstance(outcome, Compacted):
            chunks.drop(tx, session_id)

    return work


class _Matter:
    """The context before, and how its size is reckoned."""

    def __init__(self, context: Context, compacting: Compacting, frame: int, turn_id: str) -> None:
        self._context = context
        self._compacting = compacting
        self._frame = frame
        self._turn_id = turn_id
        self._before = context.weigh(frame).tokens
        self._guess = frame + context.guess()
        least, most = RATIO
        self._ratio = min(max(self._before / max(1, self._guess), least), most)
        """What the provider counts for each token that we guess."""
        self._refused = self._before if context.refused is not None else 0
        self._must = bool(self._refused) or self._before > compacting.bounds(context).most

    @property
    def summary(self) -> str:
        current = self._context.compaction
        return current.event.summary if current is not None else ""

    def measure(self, *, by_hand: bool) -> Measure:
        refused = min(filter(None, (self._refused, self._context.refused_tokens)), default=0)
        within = room.bounds(self._compacting.window, self._compacting.compact_at, refused)
        ratio = max(self._ratio, CAUTIOUS)
        target = within.target(int(self._frame * ratio))
        return Measure(
            self._frame,
            int(target / ratio),
            within.window,
            self._compacting.keep_last,
            by_hand=by_hand,
            must=self._must,
        )

    def compacted(self, found: Cut, written: Written, about: str = "") -> Outcome:
        """The event; a failure if the context would not be smaller by a fifth."""
        shown = size.of_messages(cutting.after(self._context, found, written.text))
        after = self._frame + shown
        if not self.measure(by_hand=False).gains(self._context.guess(), shown):
            reason = f"it would still take {after:,} of {self._guess:,} tokens, as we guess"
            return self.failed(reason, NO_GAIN, found.upto_seq, written.usage)
        return Compacted(
            epoch=self._context.epoch + 1,
            upto_seq=found.upto_seq,
            summary=written.text,
            how=written.how,
            pinned=found.pinned,
            tokens_before=max(self._before, int(self._guess * self._ratio)),
            tokens_after=int(after * self._ratio),
            turn_id=self._turn_id,
            thinned_upto=found.thinned_upto,
            thinned_to=found.thinned_to,
            model=written.model,
            chunks=written.chunks,
            about=about,
            usage=written.usage,
            refused_tokens=self._refused,
            reason=written.reason,
        )

    def failed(self, reason: str, code: str, upto_seq: int = 0, usage: Usage = NOTHING) -> CompactionFailed:
        return CompactionFailed(
            reason=reason,
            code=code,
            upto_seq=upto_seq,
            turn_id=self._turn_id,
            tokens=self._before,
            refused_tokens=self._refused,
            usage=usage,
        )


def _job(context: Context, found: Cut, about: str) -> Job:
    current = context.compaction
    before = current.event.summary if current is not None else ""

    def since_a_model_wrote() -> tuple[str, Sequence[Message]]:
        base = next((one for one in reversed(context.compactions) if one.event.how not in MECHANICAL), None)
        return _since(context, base, found)

    return Job(before, found.gone, found.budget, since_a_model_wrote, about)


def _since(context: Context, base: Placed | None, found: Cut) -> tuple[str, Sequence[Message]]:
    first = base.event.upto_seq if base is not None else 0
    messages = [message for message in context.messages if first < message.seq <= found.upto_seq]
    return base.event.summary if base is not None else "", messages


def _shelf(hand: Hand) -> Shelf:
    database = hand.ground.database

    async def get(request: str) -> Chunk | None:
        return await database.read(chunks.get, hand.id, request)

    async def put(request: str, chunk: Chunk) -> None:
        await database.write(chunks.put, hand.lease, request, chunk, at=hand.ground.clock.now())

    return Shelf(get, put, hand.pause.is_set)
