"""A tool call that delegates a task to a child session.

The child is created in the transaction that records it in the parent's log. A call that another worker continues finds its
child by the session, the turn and the call, and waits for the same one. Cancelling the call leaves the child running:
whatever ends the call for good stops the child (`store.repos.delegations`).
"""

from collections.abc import Callable

import msgspec

from holdfast.engine.delegation.create import (
    DelegationLimits,
    PlannedChild,
    check_background,
    check_depth,
    check_tools,
    create_child,
    plan_child,
)
from holdfast.engine.turn import approval
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.memory_call import memory_owner
from holdfast.engine.turn.model_call import count_tokens
from holdfast.model.delegation import DelegationRecord, DelegationRequest, delegation_of
from holdfast.model.errors import Unavailable
from holdfast.model.event import ChildStarted, Delegation, SessionOpened
from holdfast.model.message import ToolCall
from holdfast.model.session import CHILD
from holdfast.store.repos import delegations


class DelegationSettings(msgspec.Struct, frozen=True):
    """What a session may delegate, and where its children work."""

    limits: DelegationLimits
    tools: Callable[[], tuple[str, ...]]
    """The names of the tools of the session."""
    check_model: Callable[[str], str]
    """The full name of a model. Raises Invalid, with the known ones, if there is no such model."""
    workdir: Callable[[], str]
    terminal: str


async def delegate(
    active: ActiveSession, call: ToolCall, settings: DelegationSettings, request: DelegationRequest
) -> DelegationRecord:
    """Create the child of the call, unless it exists, and wait for its end unless it runs in the background.

    Raises Invalid, with text for the model, if the task cannot be delegated; then nothing was created.
    """
    assert active.turn.id is not None, "calls belong to a turn"
    database, turn_id = active.services.database, active.turn.id
    record = await database.read(delegations.get_by_call, active.id, turn_id, call.id)
    if record is None:
        await _create(active, call, settings, request)
        record = await database.read(delegations.get_by_call, active.id, turn_id, call.id)
        assert record is not None, "it was created a moment ago"
    return record if request.background else await _wait(active, record.child_id)


async def _create(
    active: ActiveSession, call: ToolCall, settings: DelegationSettings, request: DelegationRequest
) -> None:
    child = _plan(active, call, settings, request)
    started = ChildStarted(
        turn_id=child.link.turn_id,
        call_id=call.id,
        child_id=child.id,
        title=child.title,
        background=request.background,
    )
    await active.commit([started], lambda tx: create_child(tx, child, settings.limits))


def _plan(
    active: ActiveSession, call: ToolCall, settings: DelegationSettings, request: DelegationRequest
) -> PlannedChild:
    """The child with everything that it gets from its parent. Raises Invalid."""
    parent, summary = delegation_of(active.session, active.opened), active.session.summary
    check_depth(parent, settings.limits)
    if request.background:
        check_background(summary.source, has_goal=summary.goal == "active")
    check_tools(request.tools, settings.tools())
    turn_id, limits = active.turn.id or "", settings.limits
    link = Delegation(
        parent_id=active.id,
        turn_id=turn_id,
        call_id=call.id,
        root_id=parent.root_id or active.id,
        root_turn_id=parent.root_turn_id or turn_id,
        root_source=parent.root_source or summary.source,
        requester=approval.requester_of(active, turn_id),
        depth=parent.depth + 1,
        background=request.background,
        tools=request.tools if request.tools is not None else parent.tools,
        max_steps=_tightest(request.max_steps, parent.max_steps),
        max_tokens=_tightest(request.max_tokens, _left(active, parent.max_tokens)),
        seconds=min(request.seconds or limits.seconds, limits.seconds),
        memory_owner=memory_owner(active, turn_id),
    )
    model = settings.check_model(request.model) if request.model else active.turn.terms.model or summary.model
    opened = SessionOpened(source=CHILD, model=model, workdir=settings.workdir(), terminal=settings.terminal)
    delivery = "call" if not request.background else "note" if active.turn.terms.client else "wake"
    return plan_child(request, opened, link, delivery=delivery, sender=_sender(active), at=active.services.clock.now())


def _tightest(wanted: int, inherited: int) -> int:
    """The lower of two limits; 0 is none."""
    return min(filter(None, (wanted, inherited)), default=0)


def _left(active: ActiveSession, max_tokens: int) -> int:
    """What is left of the parent's own limit of tokens; 0 if it has none."""
    return max(1, max_tokens - count_tokens(active)) if max_tokens else 0


def _sender(active: ActiveSession) -> str:
    """The person whose budget the parent uses, and so the child: the sender of the newest message."""
    said = active.context.last_said
    return "" if said is None else said.sender


async def _wait(active: ActiveSession, child_id: str) -> DelegationRecord:
    """Wait for the end of the child. Raises Unavailable if its record was deleted."""
    database = active.services.database
    async for _ in database.listen(child_id):
        record = await database.read(delegations.get, child_id)
        if record is None:
            break
        if record.ended_at is not None:
            return record
    raise Unavailable(f"the end of sub-agent {child_id} is not known")
