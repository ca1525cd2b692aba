"""The port that every tool implements."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec

from holdfast.model.delegation import DelegationRecord, DelegationRequest
from holdfast.model.event import InstructionSource
from holdfast.model.file_change import NewFileChange
from holdfast.model.finding import Finding
from holdfast.model.memory.fact import Fact, FactRequest
from holdfast.model.message import Content, Message, Text
from holdfast.model.plan import PlanItem
from holdfast.model.provider import ToolSpec


class CallQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a running call asks the person."""

    key: str
    """Unique within the call. A question that a dead worker asked is not asked again."""
    message: str
    kind: Literal["elicitation", "sampling"] = "elicitation"
    form: str = ""
    """The JSON schema of the values to give, as text; empty if the answer is yes or no."""
    url: str = ""
    """A page for the person to open."""


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the person answered. `cancel`: nobody did."""

    action: Literal["accept", "decline", "cancel"]
    content: str = ""
    """The values of the form, as JSON text; they fit the form."""


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a running call asks the session's model."""

    key: str
    messages: tuple[Message, ...]
    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    model: str = ""
    finish: str = ""


class CallHost(Protocol):
    """What the session offers a running call."""

    async def ask(self, question: CallQuestion) -> CallAnswer:
        """Ask the person, and wait. The question is committed before it is shown, and survives a crash."""

    async def checkpoint(self, state: str) -> None:
        """Commit how another worker can continue the call; an empty text if it no longer can."""

    async def complete(self, request: CompletionRequest) -> Completion | None:
        """Ask the person, then the model; None if the person refuses. Raises ProviderFailed."""

    async def delegate(self, request: DelegationRequest) -> DelegationRecord:
        """Give the task to a child session, once per call, and wait for its end unless it runs in the background.

        Raises Invalid, with text for the model, if the task cannot be delegated.
        """

    async def remember(self, request: FactRequest) -> Fact:
        """Save a fact for later sessions, once per call. Raises Invalid, NotFound or Conflict, with text for the model."""

    async def check_fact(self, request: FactRequest) -> None:
        """Raise Invalid or NotFound, with text for the model, if the fact would be refused whatever a person answers."""

    async def find_facts(self, query: str) -> list[Fact]:
        """The remembered facts that share words with the query, the best first. Raises Invalid if there is no memory here."""

    def report(self, text: str) -> None:
        """Show the progress of the call to whoever watches. It is not stored."""

    def show_output(self, text: str) -> None:
        """Show the newest output of the call, instead of what was shown before, to whoever watches. It is not stored."""

    async def record_change(self, change: NewFileChange) -> None:
        """Store the content of a file durably before the call changes it, so that a rewind can restore it."""

    async def record_command(self, changes: Sequence[NewFileChange], *, call_id: str = "") -> None:
        """Store what a command has changed, or an earlier call that a crash cut off. Changes that are stored already are skipped."""

    def is_stopped(self) -> bool:
        """Whether a person stopped the turn. Otherwise a cancelled call may be continued by another worker."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The session, directories and approval of a tool call."""

    session_id: str
    turn_id: str
    call_id: str
    workdir: Path
    """The session's working directory."""
    files: Path
    """A private directory of the session for output that is too long to show."""
    terminal: str = "local"
    """The name of the terminal backend in which the session's commands and file tools run."""
    approved: str = ""
    """The digest of the preview that was approved; a tool that has one refuses to do anything else."""
    host: CallHost | None = None
    """The session; None where nobody can be asked."""
    checkpoint: str = ""
    """How to continue the call that another worker began; empty for a new call."""
    skills: tuple[InstructionSource, ...] = ()
    """The skills of the session, as recorded at the beginning of the turn."""


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The result that the model receives. `ok` is false if the call failed."""

    parts: tuple[Content, ...]
    ok: bool = True
    plan: tuple[PlanItem, ...] | None = None
    """The session's new plan, which is committed together with the result; None if the call does not change it."""

    @classmethod
    def say(cls, text: str, *, ok: bool = True) -> "ToolOutput":
        return cls(parts=(Text(text),), ok=ok)


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would do, for the person who is asked to approve it."""

    text: str = ""
    """The diff of a file, or the content of a new one."""
    command: str = ""
    words: tuple[str, ...] = ()
    """The words of the command, if it is one simple command without any expansion."""
    workdir: Path | None = None
    """Where it would run, if not in the session's working directory."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@runtime_checkable
class Previewing(Protocol):
    """A tool that can preview the effect of a call."""

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        """What the call would do now. Changes nothing. Raises Invalid, with text for the model, if the call would fail."""


Effect = Literal["none", "edit", "act"]
"""What a call may change: nothing outside the session, files that the tool itself writes, or anything."""


@runtime_checkable
class Classifying(Protocol):
    """A tool that knows what a call may change."""

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        """What this call may change at most. Arguments have been checked against the spec's schema."""


class Tool(Protocol):
    spec: ToolSpec
    repeatable: bool
    """Whether a call whose outcome is unknown may run again: true only for tools that change nothing."""

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        """Every reason why a person must approve this call before it runs; empty if it needs no approval.

        Arguments have been checked against the spec's schema. Must not change anything.
        """

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        """Run the call. Arguments have been checked against the spec's schema.

        A failure that the model can understand is a ToolOutput with ok=False, not an exception.
        Cancellation stops the work and its child processes before it propagates.
        """


def effect_of(tool: Tool, arguments: dict[str, object], context: ToolContext) -> Effect:
    """What a call may change. A tool that does not say so may change anything, unless its calls may be repeated."""
    if isinstance(tool, Classifying):
        return tool.effect(arguments, context)
    return "none" if tool.repeatable else "act"
