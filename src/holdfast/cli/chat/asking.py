"""Questions to the person at the terminal: about a dangerous call, about handing over, about a turn that was cut off."""

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.cli.chat.state import State
from holdfast.engine.engine import Engine
from holdfast.engine.handover import asked_by
from holdfast.interop.visible import one_line
from holdfast.model.errors import Conflict
from holdfast.store.approvals import Approval

YES = {"y", "yes", "allow", "ok"}
NO = {"n", "no", "deny"}
BY = "chat"


class Answer(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


class Asked(msgspec.Struct, frozen=True):
    """What is asked, and what to do with the answer. Where `reasons` count, any other words are a no with a reason."""

    text: str
    give: Callable[[Engine, Answer], Awaitable[str]]
    """Act on the answer; what to tell the person, if anything."""
    reasons: bool = False

    def understand(self, typed: str) -> Answer | None:
        """The answer in what was typed; None if it was something else."""
        first, _, rest = typed.partition(" ")
        word = first.lower().rstrip(",.:;!")
        if word in YES and not rest:
            return Answer(allowed=True)
        if word in NO:
            return Answer(allowed=False, reason=rest.strip())
        return Answer(allowed=False, reason=typed) if self.reasons and typed else None


def next_question(state: State | None, worker_id: str, *, is_offered: bool) -> Asked | None:
    """What the person is asked now, if anything."""
    if state is None:
        return None
    session_id = state.session.id
    for question in state.questions:
        asker = asked_by(question)
        if asker is None:
            return _about_call(session_id, question)
        if state.session.owner_worker == worker_id:
            return _about_handing_over(session_id, question, asker)
    return _about_open_turn(session_id) if is_offered else None


def _about_call(session_id: str, question: Approval) -> Asked:
    async def give(engine: Engine, answer: Answer) -> str:
        return await _approve(engine, session_id, question, answer)

    text = f"? {one_line(question.question)}. Allow it?  y = yes · n = no · other words = no, and why"
    return Asked(text, give, reasons=True)


def _about_handing_over(session_id: str, question: Approval, asker: str) -> Asked:
    async def give(engine: Engine, answer: Answer) -> str:
        told = await _approve(engine, session_id, question, answer)
        if told or not answer.allowed:
            return told
        handed = await engine.owned.hand_over(session_id, asker)
        return (
            "The session is open in the other terminal now; here you watch."
            if handed
            else "The other terminal is gone."
        )

    return Asked(f"? {one_line(question.question)}. Hand it over?  y = yes · n = no", give)


def _about_open_turn(session_id: str) -> Asked:
    async def give(engine: Engine, answer: Answer) -> str:
        if answer.allowed:
            await engine.resume(session_id)
            return ""
        return "It is left as it is; your next words close it, and /retry asks again."

    text = "? The last turn was cut off before its end. Go on with it?  y = yes · n = leave it"
    return Asked(text, give)


async def _approve(engine: Engine, session_id: str, question: Approval, answer: Answer) -> str:
    """Give the answer, unless somebody was faster."""
    try:
        place = (session_id, question.turn_id, question.call_id)
        await engine.approve(*place, allowed=answer.allowed, by=BY, reason=answer.reason)
    except Conflict as e:
        return f"! {e}"
    return ""
