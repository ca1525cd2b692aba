"""A rewind of a session, planned or done."""

from typing import Self

from holdfast.engine.rewinds import RewindPlan
from holdfast.interop.serialization import Document


class RewindFileItem(Document, frozen=True):
    path: str
    action: str
    """`restore`, `remove`, `keep`, `conflict` or `skip`."""
    reason: str


class RewindResponse(Document, frozen=True):
    """`done` is false for a preview; `preview` is a diff."""

    session_id: str
    to_seq: int
    messages: int
    files: list[RewindFileItem]
    failed: dict[str, str]
    preview: str
    done: bool

    @classmethod
    def from_plan(cls, plan: RewindPlan, preview: str, *, done: bool, failed: dict[str, str]) -> Self:
        return cls(
            session_id=plan.session_id,
            to_seq=plan.to_seq,
            messages=0 if plan.conversation is None else plan.conversation.messages,
            files=[RewindFileItem(step.path, step.action, step.reason) for step in plan.steps],
            failed=failed,
            preview=preview,
            done=done,
        )
