"""Approval questions as permission requests, and the answers. Pure."""

import msgspec
from acp import helpers
from acp.schema import PermissionOption, RequestPermissionResponse, ToolCallUpdate

from holdfast.acp import tool_calls
from holdfast.model.answer import Answer
from holdfast.model.approval import Proposal, describe, rule_kinds
from holdfast.model.text import fenced

OPTIONS: dict[str, tuple[str, str, Answer]] = {
    "allow": ("Allow once", "allow_once", Answer(allowed=True)),
    "allow_session": ("Allow in this session", "allow_always", Answer(allowed=True, scope="session")),
    "allow_always": ("Always allow", "allow_always", Answer(allowed=True, scope="always")),
    "reject": ("Deny", "reject_once", Answer(allowed=False)),
}
FORM = "This call asks for values. Enter them with `holdfast questions` or in the dashboard."


class PermissionQuestion(msgspec.Struct, frozen=True):
    """An open question about a call, of the session or of one of its sub-agents."""

    session_id: str
    turn_id: str
    call_id: str
    question: str
    proposal: Proposal


def describe_call(asked: PermissionQuestion) -> ToolCallUpdate:
    """The call, with everything that an approval would run."""
    text = describe(asked.proposal) if asked.proposal.tool else asked.question
    shown = f"{text}\n\n{FORM}" if asked.proposal.form else text
    return ToolCallUpdate(
        tool_call_id=tool_calls.call_id(asked.turn_id, asked.call_id),
        title=asked.question.splitlines()[0] if asked.question else asked.proposal.tool,
        status="pending",
        content=[helpers.tool_content(helpers.text_block(fenced(shown)))],
    )


def options(proposal: Proposal) -> list[PermissionOption]:
    """The possible answers. A rule is offered only where one can be made; a form can only be declined here."""
    names = ["reject"] if proposal.form else ["allow", "reject"]
    if "exact" in rule_kinds(proposal):
        names = ["allow", "allow_session", "allow_always", "reject"]
    return [
        PermissionOption(option_id=name, name=OPTIONS[name][0], kind=OPTIONS[name][1])  # type: ignore[arg-type] # one of the kinds
        for name in names
    ]


def parse_outcome(response: RequestPermissionResponse, proposal: Proposal) -> Answer | None:
    """The answer; None if the person gave none. An option that was not offered is a refusal."""
    chosen = response.outcome
    if chosen.outcome == "cancelled":
        return None
    if chosen.option_id not in {option.option_id for option in options(proposal)}:
        return Answer(allowed=False, reason="the editor chose an unknown option")
    return OPTIONS[chosen.option_id][2]
