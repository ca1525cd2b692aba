"""Questions to the user at the terminal: approve a call, hand over the session, resume an interrupted turn."""

import re
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.cli.chat.session_state import ChatState
from holdfast.engine.engine import Engine
from holdfast.engine.liveness.handover_question import asked_by
from holdfast.interop import questions
from holdfast.model.answer import Answer, parse_answer
from holdfast.model.approval import Proposal, describe, line_count, rule_kinds, suggested_prefix
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.form import USAGE, parse_reply
from holdfast.model.sanitize import exact, one_line
from holdfast.store.repos.approvals import Approval

BY = "chat"
OPEN_TURN = "open turn "
"""Prefix of the id of the question whether to resume a turn."""
LINES_SHOWN = 40
"""Lines of a command or diff that are printed at first; `v` shows all."""
LETTERS = {"s": "session", "a": "always", "p": "always prefix", "t": "always tool"}
"""Keys for answers that make a rule."""
SHOW_ALL = frozenset({"v", "view", "show", "more"})
COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
BOLD, YELLOW, PLAIN = "\x1b[1m", "\x1b[33m", "\x1b[0m"


class TerminalPrompt(msgspec.Struct, frozen=True):
    """A question, and what to do with the answer."""

    text: str
    """The line above the input."""
    submit: Callable[[Engine, Answer], Awaitable[str]]
    """Act on the answer; returns a notice for the user, or an empty text."""
    id: str = ""
    details: str = ""
    """Coloured lines that are printed once, before the question."""
    all_details: str = ""
    """The same lines, unabridged."""
    must_answer: bool = False
    """Whether another message would end the turn in question; then messages wait for the answer."""
    about_call: bool = False
    proposal: Proposal = Proposal()
    """What is asked."""

    def parse(self, typed: str) -> Answer | None:
        """Parse a typed answer; None if it is not an answer."""
        if self.proposal.form:
            return parse_reply(self.proposal, typed)
        return parse_answer(LETTERS.get(typed.strip().lower(), typed) if self.about_call else typed)


def next_question(state: ChatState | None, worker_id: str, *, is_offered: bool) -> TerminalPrompt | None:
    """The question to show now, if any."""
    if state is None:
        return None
    for question in state.questions:
        requester = asked_by(question)
        if requester is None:
            is_own = question.session_id == state.session.id
            return _about_call(question, is_left=is_own and state.session.lease_worker is None)
        if state.session.owner_worker == worker_id:
            return _about_handing_over(question, requester)
    return _about_open_turn(state) if is_offered else None


def _about_call(question: Approval, *, is_left: bool) -> TerminalPrompt:
    async def submit(engine: Engine, answer: Answer) -> str:
        return await _answer(engine, question, answer)

    proposal = question.proposal
    count = line_count(proposal) if proposal.tool else 0
    keys = [USAGE] if proposal.form else ["y = yes", "n [REASON] = no", *_rule_keys(proposal)]
    if count > LINES_SHOWN:
        keys.append(f"v = show all {count:,} lines")
    return TerminalPrompt(
        f"? {'Your answer' if proposal.form else 'Allow this?'}  {' · '.join(keys)}",
        submit,
        id=question.id or f"{question.turn_id} {question.call_id}",
        details=coloured(_described(question, LINES_SHOWN)),
        all_details=coloured(_described(question, None)),
        must_answer=is_left,
        about_call=proposal.kind == "approval",
        proposal=proposal,
    )


def _described(question: Approval, lines: int | None) -> str:
    head = "Approval needed: " if question.proposal.kind != "elicitation" else ""
    return f"{head}{questions.text(question, max_lines=lines, more='v shows all')}"


def _rule_keys(proposal: Proposal) -> list[str]:
    """The keys for answers that make a rule."""
    kinds = rule_kinds(proposal)
    if not kinds:
        return []
    keys = ["s = for this session", "a = always this command" if proposal.command else "a = always these arguments"]
    if "prefix" in kinds:
        keys.append(f"p = always `{one_line(exact(' '.join(suggested_prefix(proposal))))} …`")
    if "tool" in kinds:
        keys.append(f"t = always {proposal.tool}")
    return keys


def coloured(text: str) -> str:
    """Colour the lines of a question: bold heading, coloured diff. The text is already sanitized."""
    head, *rest = text.split("\n")
    lines = [f"{BOLD}{YELLOW}{head}{PLAIN}", *(_line(line) for line in rest)]
    return "".join(f"{line}\n" for line in lines)


def plain(text: str) -> str:
    """Remove the colours, for output that is not a terminal."""
    return re.sub(r"\x1b\[\d*m", "", text)


def _line(line: str) -> str:
    colour = COLOURS.get(line[2:3], "") if line.startswith("  ") and not line.startswith("  - ") else ""
    return f"{colour}{line}{PLAIN}" if colour else line


def _about_handing_over(question: Approval, requester: str) -> TerminalPrompt:
    async def submit(engine: Engine, answer: Answer) -> str:
        notice = await _answer(engine, question, Answer(allowed=answer.allowed, reason=answer.reason))
        if notice or not answer.allowed:
            return notice
        handed = await engine.owned.hand_over(question.session_id, requester)
        return (
            "Handed the session over to the other terminal; you are now watching."
            if handed
            else "The other terminal is closed."
        )

    text = f"? {one_line(question.question)}. Hand it over?  y = yes · n = no"
    return TerminalPrompt(text, submit, id=question.id or question.call_id)


def _about_open_turn(state: ChatState) -> TerminalPrompt:
    session_id = state.session.id

    async def submit(engine: Engine, answer: Answer) -> str:
        if answer.allowed:
            await engine.resume(session_id)
            return ""
        if state.waiting:
            return "The turn stays open. Queued messages are not sent; /queue sends, edits or drops them."
        return "The turn stays open. Your next message closes it; /retry repeats it."

    was, will = (f" {state.left.was}", f"yes: {state.left.will}") if state.left else ("", "yes")
    text = f"? The last turn was interrupted{was}. Resume it?  y = {will} · n = no"
    # Show calls that were approved before the interruption again before anything runs.
    approved = "".join(
        coloured(f"Approved before the interruption, runs if you resume: {describe(one.proposal, session_id)}")
        for one in state.approved
    )
    return TerminalPrompt(
        text, submit, id=f"{OPEN_TURN}{state.session.summary.open_turn}", details=approved, all_details=approved
    )


def is_message(text: str, question_id: str) -> bool:
    """Whether a line typed for a question that is gone is a message.

    For the question whether to resume, anything but yes and no is a message: a fast typist sends it before the redraw.
    """
    return question_id.startswith(OPEN_TURN) and parse_answer(text) is None


async def _answer(engine: Engine, question: Approval, answer: Answer) -> str:
    """Submit the answer; a notice if the question was answered elsewhere."""
    try:
        await engine.answer(question.call_key, answer, by=BY)
    except (Conflict, Invalid) as e:
        return f"! {e}"
    return ""
