"""A reason why a call needs approval."""

from collections.abc import Iterable

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One risk of a tool call, and the part of the call that it concerns."""

    reason: str
    """What the part does, as a clause: `deletes directories recursively`."""
    part: str = ""
    """The command, program or path that the reason is about; empty if it is about the whole call."""

    def __str__(self) -> str:
        return f"`{self.part}`: {self.reason}" if self.part else self.reason


def summary(findings: Iterable[Finding]) -> str:
    """All findings in one line."""
    return "; ".join(str(finding) for finding in findings)


OWN_FILES = "belongs to Holdfast itself"
OWN_STORE = "reads or changes Holdfast's own store"


def protects_holdfast(finding: Finding) -> bool:
    """Whether it is about Holdfast's own files or commands: such a call asks in every permission mode."""
    return finding.reason in (OWN_FILES, OWN_STORE)
