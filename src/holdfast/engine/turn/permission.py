"""Decides whether a call runs, asks a person or is denied: from the permission mode, the approval policy and the risks. Pure.

The stricter of mode and policy wins. The mode that counts is that of the session when the call starts: it is checked in
the transaction that commits `ToolStarted`.
"""

from typing import Literal

import msgspec

from holdfast.model.finding import Finding, protects_holdfast, summary
from holdfast.model.mode import Mode
from holdfast.model.session import Session
from holdfast.model.tool import Effect

Policy = Literal["ask", "allow", "deny"]
EVERY_CHANGE = Finding("the permission mode is ask, which asks before every change")
PLAN_MODE = (
    "Not run: the session is in plan mode, which is read-only, and this call may change something. Explain what you "
    "would do; only the user can leave plan mode."
)
BEGUN = "It had started before the mode changed, so it may have acted."


class Permission(msgspec.Struct, frozen=True):
    """What happens to a call."""

    action: Literal["run", "ask", "deny"]
    findings: tuple[Finding, ...] = ()
    """Why a person must approve it."""
    why: str = ""
    """For the model: why it is denied."""


RUN = Permission("run")
ASK_AGAIN = Permission("ask", (Finding("a person denied it before"),))


class ModeChangedMeanwhile(Exception):
    """The permission mode is not the one for which the call was permitted. Nothing was written."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(f"the permission mode was changed to {mode}")
        self.mode = mode


def decide(mode: Mode, policy: Policy, effect: Effect, findings: tuple[Finding, ...]) -> Permission:
    """What happens to a call with that effect and those risks."""
    if mode == "plan" and effect != "none":
        return Permission("deny", why=PLAN_MODE)
    if mode == "ask" and effect != "none":
        findings = findings or (EVERY_CHANGE,)
    elif policy == "allow":
        findings = ()
    elif mode == "trusted":
        findings = tuple(filter(protects_holdfast, findings))
    if not findings:
        return RUN
    if policy == "deny":
        return Permission("deny", findings, f"Not run: {summary(findings)}, and such calls are denied here.")
    return Permission("ask", findings)


def require_mode(session: Session, mode: Mode) -> None:
    """Raise ModeChangedMeanwhile if the session has another mode."""
    if session.summary.mode != mode:
        raise ModeChangedMeanwhile(session.summary.mode)
