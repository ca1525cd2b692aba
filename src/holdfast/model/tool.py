"""The port that every tool fills."""

from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.model.asking import ToolSpec
from holdfast.model.message import Content, Text


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call takes place."""

    session_id: str
    turn_id: str
    call_id: str
    workdir: Path
    """The session's working folder."""
    files: Path
    """A private folder of the session for output that is too long to show."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is told. `ok` is false for a call that did not do what was asked."""

    parts: tuple[Content, ...]
    ok: bool = True

    @classmethod
    def say(cls, text: str, *, ok: bool = True) -> "Output":
        return cls(parts=(Text(text),), ok=ok)


class Tool(Protocol):
    spec: ToolSpec
    repeatable: bool
    """Whether a call whose outcome is unknown may simply be run again: true only for tools that change nothing."""

    def risk(self, arguments: dict[str, object]) -> str | None:
        """Why a person must be asked before this call runs, in a sentence; None if nobody need be."""

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        """Do it. Arguments have been checked against the spec's schema.

        A failure that the model can understand is an Output with ok=False, not an exception.
        Cancellation stops the work, child processes included, before it passes through.
        """
