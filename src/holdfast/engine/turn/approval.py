"""Approval of tool calls: a rule allows the call, or a person is asked and the turn waits for the answer.

The question is committed before it is shown, with everything that would run. A worker that recovers the turn finds the
question in the store and waits for the same answer. If what would run has changed meanwhile, an open question is asked
again, and an earlier approval does not count.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.engine import outbound
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.permission import Permission
from holdfast.model.answer import Answer
from holdfast.model.approval import ApprovalRule, Proposal, describe
from holdfast.model.delegation import delegation_of
from holdfast.model.event import ApprovalAnswered, ApprovalAsked, ApprovalRuleApplied, Event, UserSaid
from holdfast.model.finding import Finding, summary
from holdfast.model.message import ToolCall
from holdfast.model.mode import LOCAL_USER, Mode
from holdfast.model.session import Session
from holdfast.model.tool import Preview, Previewing, Tool, ToolContext
from holdfast.store.database import Transaction
from holdfast.store.repos import approval_rules, approvals, sessions
from holdfast.store.repos.approvals import Approval

QUESTION_LINES = 60
"""Lines of a command or diff in the text of a question; every interface can show the rest."""
TIME_LIMIT = "time limit"
"""`ApprovalAnswered.by` for a question that was not answered in time."""
BY_MODE = "permission mode"
"""`ApprovalAnswered.by` for a question that a change of the permission mode answered."""
CHANGED = "what the call would do has changed since the question was asked"
REQUESTERS = {"api": "API client", "cron": "schedule", "batch": "batch"}
"""The requester of turns whose input names no sender, by source; the local user for all others."""


class ApprovalDecision(msgspec.Struct, frozen=True):
    """Whether the call may run."""

    allowed: bool
    why: str = ""
    """For the model: why not."""
    events: tuple[Event, ...] = ()
    """What is committed when the call starts."""
    preview_digest: str = ""


class ProposedCall(msgspec.Struct, frozen=True):
    """A call that needs approval."""

    call: ToolCall
    turn_id: str
    proposal: Proposal
    preview_digest: str


async def propose(
    active: ActiveSession,
    call: ToolCall,
    tool: Tool,
    arguments: dict[str, object],
    findings: tuple[Finding, ...],
    context: ToolContext,
) -> ProposedCall:
    """Describe what the call would do now. Raises Invalid if it cannot succeed."""
    preview = await tool.preview(arguments, context) if isinstance(tool, Previewing) else Preview()
    link = delegation_of(active.session, active.opened)
    proposal = Proposal(
        tool=call.name,
        arguments=call.arguments,
        command=preview.command,
        words=preview.words,
        preview=preview.text,
        workdir=str(preview.workdir or context.workdir),
        requester=requester_of(active, context.turn_id),
        findings=findings,
        parent_id=link.parent_id,
        root_id=link.root_id,
    )
    return ProposedCall(call, context.turn_id, proposal, preview.digest if preview.text else "")


def requester_of(active: ActiveSession, turn_id: str) -> str:
    """Who requested the turn; for a child session, the turn of the root session that delegated.

    A turn without a message was requested by who wrote the last one, unless others write to the session, too.
    """
    inherited = delegation_of(active.session, active.opened).requester
    events, last = outbound.of_turn(active.entries, turn_id), active.context.last_said
    if last is not None and not last.shared and not any(isinstance(event, UserSaid) for event in events):
        events = [last]
    return inherited or requester(active.session, events)


def requester(session: Session, events: Iterable[Event]) -> str:
    """Who requested the turn; several, if input of others joined it."""
    source, channel = session.summary.source, session.summary.channel
    default = REQUESTERS.get(source) or (channel if source == "gateway" and channel else LOCAL_USER)
    senders = dict.fromkeys(event.sender or default for event in events if isinstance(event, UserSaid))
    return ", ".join(senders) or default


async def decide(
    active: ActiveSession, asked: ProposedCall, *, seconds: float | None, permit: Callable[[Mode], Permission]
) -> ApprovalDecision:
    """Whether a person, or a rule that a person made, allows the call. Waits for the answer.

    `permit` decides in a permission mode: a mode in which the call needs no question, or is denied, answers it.
    """
    risk = summary(asked.proposal.findings)
    place = (active.id, asked.turn_id, asked.call.id)
    found = await active.services.database.read(approvals.get, *place)
    if found is None and (rule := await _rule_for(active, asked.proposal)) is not None:
        event = ApprovalRuleApplied(
            turn_id=asked.turn_id,
            call_id=asked.call.id,
            rule_id=rule.id,
            by=rule.created_by,
            proposal=asked.proposal,
        )
        return ApprovalDecision(allowed=True, events=(event,), preview_digest=asked.preview_digest)
    if found is not None and _has_changed(found, asked.proposal) and found.allowed:
        return ApprovalDecision(
            allowed=False, why=f"Not run: it was approved, but {CHANGED}. Look again and repeat the call."
        )
    with active.asking():
        if found is None or (found.allowed is None and _has_changed(found, asked.proposal)):
            await _put(active, asked, again=found is not None)
        allowed = await wait(active, place, seconds, permit)
    if allowed:
        return ApprovalDecision(allowed=True, preview_digest=asked.preview_digest)
    why = "Approval timed out: nobody answered in time" if allowed is None else await _refusal(active, place)
    return ApprovalDecision(allowed=False, why=f"Not run: {risk}. {why}.")


async def _rule_for(active: ActiveSession, proposal: Proposal) -> ApprovalRule | None:
    rules = await active.services.database.read(approval_rules.list_active, proposal.requester, proposal.tool)
    return next((rule for rule in rules if rule.applies_to(proposal, active.id)), None)


def _has_changed(found: Approval, proposal: Proposal) -> bool:
    """Questions of old releases have no proposal and count as unchanged."""
    return bool(found.proposal.tool) and found.proposal.digest != proposal.digest


async def _put(active: ActiveSession, asked: ProposedCall, *, again: bool) -> None:
    """Commit the question, and send it to where the turn came from."""
    call, turn_id, proposal = asked.call, asked.turn_id, asked.proposal
    at, known = active.services.clock.now(), tuple(active.entries)
    place = (active.id, turn_id, call.id)
    question_id = approvals.derive_id(*place, at=at)
    more = f"'holdfast questions show {question_id}' or /questions show {question_id} shows all"
    question = describe(proposal, active.id, max_lines=QUESTION_LINES, more=more)
    event = ApprovalAsked(
        turn_id=turn_id, call_id=call.id, question=question, question_id=question_id, proposal=proposal
    )
    withdrawn = ApprovalAnswered(turn_id=turn_id, call_id=call.id, allowed=False, by="holdfast", reason=CHANGED)
    events: Sequence[Event] = [withdrawn, event] if again else [event]

    def put(tx: Transaction) -> None:
        if again:
            approvals.replace(tx, place, question, proposal, at=at)
        else:
            approvals.ask(tx, *place, question, at=at, proposal=proposal)
        outbound.ask(tx, active.id, known, event, at=at)

    await active.commit(events, put)


async def put_question(active: ActiveSession, place: tuple[str, str, str], proposal: Proposal) -> None:
    """Commit a question that is not about a call's start, and send it to where the turn came from."""
    _, turn_id, call_id = place
    at, known = active.services.clock.now(), tuple(active.entries)
    question_id = approvals.derive_id(*place, at=at)
    more = f"'holdfast questions show {question_id}' or /questions show {question_id} shows all"
    question = describe(proposal, active.id, max_lines=QUESTION_LINES, more=more)
    event = ApprovalAsked(
        turn_id=turn_id, call_id=call_id, question=question, question_id=question_id, proposal=proposal
    )

    def put(tx: Transaction) -> None:
        approvals.ask(tx, *place, question, at=at, proposal=proposal)
        outbound.ask(tx, active.id, known, event, at=at)

    await active.commit([event], put)


async def wait(
    active: ActiveSession,
    place: tuple[str, str, str],
    seconds: float | None,
    permit: Callable[[Mode], Permission] | None = None,
) -> bool | None:
    """The answer of a person, or of a change of the permission mode; None if it did not come in time."""
    database = active.services.database
    try:
        async with asyncio.timeout(seconds):
            async for _ in database.listen(active.id):
                found, mode = await database.read(_state, place)
                if found is not None and found.allowed is not None:
                    return bool(found.allowed)
                permitted = None if permit is None else permit(mode)
                if permitted is not None and permitted.action != "ask":
                    answer = Answer(allowed=permitted.action == "run", reason=f"the permission mode is now {mode}")
                    return await _close(active, place, answer, BY_MODE)
    except TimeoutError:
        pass
    return await _close(active, place, Answer(allowed=False), TIME_LIMIT)


def _state(tx: Transaction, place: tuple[str, str, str]) -> tuple[Approval | None, Mode]:
    """The question, and the permission mode of its session."""
    return approvals.get(tx, *place), sessions.get(tx, place[0]).summary.mode


async def _close(active: ActiveSession, place: tuple[str, str, str], answer: Answer, by: str) -> bool | None:
    """Answer a question that no person has answered; None if its time is up."""
    at = active.services.clock.now()

    def work(tx: Transaction) -> bool | None:
        found = approvals.get(tx, *place)
        if found is not None and found.allowed is not None:
            return bool(found.allowed)
        approvals.answer(tx, *place, answer=answer, by=by, at=at)
        return None if by == TIME_LIMIT else answer.allowed

    return await active.services.database.write(work)


async def _refusal(active: ActiveSession, place: tuple[str, str, str]) -> str:
    reason = await active.services.database.read(approvals.get_reason, *place)
    return f"Approval was denied: {reason}" if reason else "Approval was denied"
