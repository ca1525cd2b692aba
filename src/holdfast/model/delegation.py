"""Tasks that a session delegates to child sessions: the request, the record, and the texts for the model. Pure."""

import msgspec

from holdfast.model.event import Delegation, Event, SessionOpened
from holdfast.model.session import Session
from holdfast.model.times import SECOND


def delegation_of(session: Session, opened: Event) -> Delegation:
    """What a child session got from its parent; the defaults if the session is no child, or a fork of one."""
    if session.delegated_by is None or not isinstance(opened, SessionOpened):
        return Delegation()
    return opened.delegation


class DelegationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool call delegates. A limit of 0 means the default."""

    task: str
    model: str = ""
    tools: tuple[str, ...] | None = None
    """The tools that the child may use; None for all that its parent has."""
    background: bool = False
    max_steps: int = 0
    max_tokens: int = 0
    seconds: int = 0


class DelegationRecord(msgspec.Struct, frozen=True):
    """A delegated task and its state, in the order of the columns."""

    child_id: str
    parent_id: str
    turn_id: str
    call_id: str
    task_turn: str
    """The child's turn that does the task."""
    title: str
    delivery: str
    """How the parent gets the completion: as the result of the `call`, as input that makes it `wake`, or as a `note`."""
    started_at: int
    deadline_at: int
    stop_reason: str
    """Why the child was asked to stop; empty if it was not."""
    ended_at: int | None
    outcome: str | None
    reason: str
    reply: str
    """The child's last reply, until the parent has got it."""
    delivered_at: int | None

    @property
    def state(self) -> str:
        """`running`, `stopping`, or the outcome."""
        if self.outcome is not None:
            return self.outcome
        return "stopping" if self.stop_reason else "running"


def state_line(record: DelegationRecord) -> str:
    """The state of a delegated task in a few words."""
    how = {"call": "", "wake": ", in the background", "note": ", not waited for"}[record.delivery]
    why = record.stop_reason if record.ended_at is None else record.reason
    return f"{record.state}{how}{f' ({why})' if why else ''}"


def completion_text(record: DelegationRecord) -> str:
    """The completion, for the model of the parent."""
    assert record.ended_at is not None, "only a child that has ended has a completion"
    seconds = max(0, record.ended_at - record.started_at) // SECOND
    return describe_end(record.child_id, record.outcome or "", record.reason, record.reply, f" after {seconds} s")


def describe_end(child_id: str, outcome: str, reason: str, reply: str, duration: str = "") -> str:
    """How a child ended, and what it said last."""
    if outcome == "done":
        return f"Sub-agent {child_id} finished{duration}. Its result:\n\n{reply or '(It said nothing.)'}"
    how = {"failed": "failed", "interrupted": "was stopped", "cancelled": "was cancelled"}.get(outcome, outcome)
    said = f" The last it said:\n\n{reply}" if reply else " It said nothing."
    return f"Sub-agent {child_id} {how}{duration}: {reason or 'no reason was given'}.{said}"
