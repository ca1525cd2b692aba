"""The context of a session, its compactions, and the explanation of its state."""

from typing import Self

import msgspec

from holdfast.engine.context.budget import ContextFill
from holdfast.engine.explain import Explanation
from holdfast.interop.documents.processes import ProcessItem
from holdfast.interop.documents.questions import ApprovalItem
from holdfast.interop.documents.sessions import SessionResponse
from holdfast.interop.documents.workers import WorkerItem
from holdfast.interop.serialization import Document, Json
from holdfast.model.event import Compacted, CompactionFailed, CompactionUndone
from holdfast.model.session import Session
from holdfast.model.times import iso


class FailedCompactionItem(Document, frozen=True):
    code: str
    reason: str
    tokens: int


class ContextItem(Document, frozen=True):
    """How full a context is. `last` is the compaction in effect: the fields of its event, with `seq` and `at`."""

    epoch: int
    tokens: int
    window: int
    share: float
    compacted_at: int
    last: Json | None
    failed: FailedCompactionItem | None
    next: str

    @classmethod
    def from_fill(cls, fill: ContextFill) -> Self:
        last, failed = fill.last, fill.failed
        return cls(
            epoch=fill.epoch,
            tokens=fill.tokens,
            window=fill.window,
            share=round(fill.share, 4),
            compacted_at=fill.limit,
            last=None if last is None else {"seq": last.seq, "at": iso(last.at), **msgspec.to_builtins(last.event)},
            failed=None if failed is None else FailedCompactionItem(failed.code, failed.reason, failed.tokens),
            next=fill.next,
        )


class CompactResponse(msgspec.Struct, frozen=True):
    """The result; the fields of the event are added to these."""

    session_id: str
    epoch: int
    compacted: bool = False
    undone: bool = False


def compaction_document(session: Session, event: Compacted | CompactionFailed | CompactionUndone) -> Json:
    """Build a `CompactResponse` with the fields of the event."""
    if isinstance(event, CompactionUndone):
        return {"session_id": session.id, "epoch": event.epoch, "undone": True}
    epoch = event.epoch if isinstance(event, Compacted) else session.summary.epoch
    done = isinstance(event, Compacted)
    return {"session_id": session.id, "epoch": epoch, "compacted": done, **msgspec.to_builtins(event)}


class DecisionItem(Document, frozen=True):
    seq: int
    at: str
    kind: str
    what: str
    evidence: str


class WhyResponse(Document, frozen=True):
    session: SessionResponse
    owner: WorkerItem | None
    doing: str
    decisions: list[DecisionItem]
    context: ContextItem | None
    attempts: int
    questions: list[ApprovalItem]
    next: str
    processes: list[ProcessItem]
    reset: str
    terminal: str
    delegation: list[str]
    """The task that was delegated to the session, and its sub-agents."""
    goal: list[str]
    """The session's newest goal, and its state."""

    @classmethod
    def from_explanation(cls, found: Explanation) -> Self:
        owner, verdict = found.owner, found.verdict
        return cls(
            session=SessionResponse.from_session(found.session, found.children),
            owner=None if owner is None or verdict is None else WorkerItem.from_worker(owner, verdict),
            doing=found.doing,
            decisions=[DecisionItem(one.seq, iso(one.at), one.kind, one.what, one.evidence) for one in found.decisions],
            context=None if found.fill is None else ContextItem.from_fill(found.fill),
            attempts=found.attempts,
            questions=[ApprovalItem.from_approval(one) for one in found.questions],
            next=found.next,
            processes=[ProcessItem.from_process(process, seen) for process, seen in found.processes],
            reset=found.reset,
            terminal=found.terminal,
            delegation=found.delegation,
            goal=found.goal,
        )
