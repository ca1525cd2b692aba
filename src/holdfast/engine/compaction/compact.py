"""Compacts the context and logs how; the log itself stays complete.

`budget` decides when, `plan` decides what goes, `summarize` produces the summary in stored chunks, and this module
commits one event: `compacted`, which changes the view, or `compaction_failed`, which changes nothing and gives the
reason. A crash before that commit leaves the context unchanged and the finished chunks in the store.

Nothing here blocks another session: model calls are awaited, and long computations run in a thread. Messages that
arrive meanwhile wait in the input queue. An interrupt also ends the compaction; a worker that shuts down stops after the
current chunk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.engine.compaction import plan as planning
from holdfast.engine.compaction.plan import CompactionPlan, PlanMeasure
from holdfast.engine.compaction.summarize import (
    ChunkStore,
    SummaryAuthor,
    SummaryFailed,
    SummaryJob,
    WorkerLeaving,
    WrittenSummary,
    write,
)
from holdfast.engine.context import budget
from holdfast.engine.context.budget import NO_GAIN
from holdfast.engine.context.context import Context
from holdfast.engine.context.logged_compaction import LoggedCompaction
from holdfast.engine.context.tokens import estimate_messages
from holdfast.engine.context.trimming import MECHANICAL
from holdfast.model.event import Compacted, CompactionFailed, Usage
from holdfast.model.message import Message
from holdfast.model.mode import DEFAULT_MODE, Mode
from holdfast.model.provider import AskModel
from holdfast.store.database import Transaction
from holdfast.store.repos import summary_chunks

SUMMARY_FAILED = "summary_failed"
MANY_MESSAGES = 2_000
"""From this many messages on, planning runs in a thread and does not block the event loop."""
RATIO = (0.1, 4.0)
"""How far a provider's count may differ from our estimate before we distrust it."""
MIN_RATIO = 0.5
"""The same where we decide what fits: some providers count only part of the request."""
NO_USAGE = Usage()

CompactionOutcome = Compacted | CompactionFailed


class CompactionSettings(msgspec.Struct, frozen=True):
    """Settings of compaction."""

    window: int
    """The window of the session's model, in tokens."""
    compact_at: float
    keep_last: int
    author: SummaryAuthor


class SessionToCompact(msgspec.Struct, frozen=True):
    """What compaction needs of a session."""

    context: Context
    turn_id: str
    """The open turn; empty between two turns."""
    chunks: ChunkStore
    before_summary: Callable[[], Awaitable[None]]
    """Awaited before a model is asked for the summary."""
    mode: Mode = DEFAULT_MODE
    """The permission mode."""
    metered: Callable[[AskModel], AskModel] | None = None
    """Makes the calls of the model be checked and recorded."""


async def compact(
    session: SessionToCompact,
    compacting: CompactionSettings,
    frame: int,
    *,
    about: str = "",
    manual: bool = False,
) -> CompactionOutcome | None:
    """The event to commit; None if the worker shuts down. `frame` is the size of the system text and the tools.

    Commits only finished chunks of the summary.
    """
    outcome = await _compact(session, compacting, frame, about=about, manual=manual)
    return msgspec.structs.replace(outcome, mode=session.mode) if isinstance(outcome, Compacted) else outcome


def could_shrink(context: Context, compacting: CompactionSettings, frame: int) -> bool:
    """Whether a compaction that a person asks for would be tried. It may still be refused, if the summary gets too long."""
    before = _ContextBefore(context, compacting, frame, turn_id="")
    return planning.plan(context, before.measure(manual=True)) is not None


async def _compact(
    session: SessionToCompact, compacting: CompactionSettings, frame: int, *, about: str, manual: bool
) -> CompactionOutcome | None:
    context, turn_id = session.context, session.turn_id

    def prepare() -> tuple[_ContextBefore, CompactionPlan | None]:
        before = _ContextBefore(context, compacting, frame, turn_id)
        return before, planning.plan(context, before.measure(manual=manual))

    before, found = await asyncio.to_thread(prepare) if len(context.view) > MANY_MESSAGES else prepare()
    if found is None:
        return before.failed("its context would shrink by less than a fifth", NO_GAIN)
    if not found.gone:
        return before.compacted(found, WrittenSummary(before.summary, "thinned", "", 0, NO_USAGE))
    await session.before_summary()
    try:
        written = await write(_author(session, compacting), _job(context, found, about), session.chunks)
    except WorkerLeaving:
        return None
    except SummaryFailed as e:
        outcome: CompactionOutcome = before.failed(
            f"no summary could be written: {e}", SUMMARY_FAILED, found.upto_seq, e.usage
        )
    else:
        outcome = before.compacted(found, written, about)
    return msgspec.structs.replace(outcome, recorded=session.metered is not None)


def _author(session: SessionToCompact, compacting: CompactionSettings) -> SummaryAuthor:
    author = compacting.author
    if session.metered is None:
        return author
    return msgspec.structs.replace(author, ask=session.metered(author.ask))


def delete_used_chunks(outcome: CompactionOutcome, session_id: str) -> Callable[[Transaction], None]:
    """Work for the transaction that commits the outcome: delete the chunks once the summary is stored."""

    def work(tx: Transaction) -> None:
        if isinstance(outcome, Compacted):
            summary_chunks.delete(tx, session_id)

    return work


class _ContextBefore:
    """The context before the compaction, and how to compute its size."""

    def __init__(self, context: Context, compacting: CompactionSettings, frame: int, turn_id: str) -> None:
        self._context = context
        self._compacting = compacting
        self._frame = frame
        self._turn_id = turn_id
        self._before = context.estimate_size(frame).tokens
        self._estimate = frame + context.estimate_messages()
        least, most = RATIO
        self._ratio = min(max(self._before / max(1, self._estimate), least), most)
        """The provider's count per estimated token."""
        self._refused = self._before if context.refused is not None else 0
        self._must_shrink = (
            bool(self._refused)
            or self._before
            > budget.bounds(compacting.window, compacting.compact_at, context.refused_tokens).max_context
        )

    @property
    def summary(self) -> str:
        current = self._context.compaction
        return current.event.summary if current is not None else ""

    def measure(self, *, manual: bool) -> PlanMeasure:
        refused = min(filter(None, (self._refused, self._context.refused_tokens)), default=0)
        within = budget.bounds(self._compacting.window, self._compacting.compact_at, refused)
        ratio = max(self._ratio, MIN_RATIO)
        target = within.target(int(self._frame * ratio))
        return PlanMeasure(
            self._frame,
            int(target / ratio),
            within.window,
            self._compacting.keep_last,
            manual=manual,
            must_shrink=self._must_shrink,
        )

    def compacted(self, found: CompactionPlan, written: WrittenSummary, about: str = "") -> CompactionOutcome:
        """The event; a failure if the context would not shrink by a fifth."""
        shown = estimate_messages(planning.after(self._context, found, written.text))
        after = self._frame + shown
        if not self.measure(manual=False).gains(self._context.estimate_messages(), shown):
            reason = f"it would still take {after:,} of {self._estimate:,} tokens (estimate)"
            return self.failed(reason, NO_GAIN, found.upto_seq, written.usage)
        return Compacted(
            epoch=self._context.epoch + 1,
            upto_seq=found.upto_seq,
            summary=written.text,
            how=written.how,
            pinned=found.pinned,
            tokens_before=max(self._before, int(self._estimate * self._ratio)),
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
            plan=self._context.plan_at(found.upto_seq),
            goal=self._context.goal,
        )

    def failed(self, reason: str, code: str, upto_seq: int = 0, usage: Usage = NO_USAGE) -> CompactionFailed:
        return CompactionFailed(
            reason=reason,
            code=code,
            upto_seq=upto_seq,
            turn_id=self._turn_id,
            tokens=self._before,
            refused_tokens=self._refused,
            usage=usage,
        )


def _job(context: Context, found: CompactionPlan, about: str) -> SummaryJob:
    current = context.compaction
    before = current.event.summary if current is not None else ""

    def since_a_model_wrote() -> tuple[str, Sequence[Message]]:
        base = next((one for one in reversed(context.compactions) if one.event.how not in MECHANICAL), None)
        return _since(context, base, found)

    return SummaryJob(before, found.gone, found.budget, since_a_model_wrote, about)


def _since(context: Context, base: LoggedCompaction | None, found: CompactionPlan) -> tuple[str, Sequence[Message]]:
    first = base.event.upto_seq if base is not None else 0
    messages = [message for message in context.messages if first < message.seq <= found.upto_seq]
    return base.event.summary if base is not None else "", messages
