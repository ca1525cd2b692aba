"""Runs tool calls. Each is approved if necessary, recorded as started, run, and recorded with its result, in that order."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from holdfast.engine.context.truncate import omit_middle
from holdfast.engine.turn import approval, permission
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.call_host import CallModelSettings, HostSettings, SessionHost
from holdfast.engine.turn.delegate_call import DelegationSettings
from holdfast.engine.turn.memory_call import MemorySettings
from holdfast.engine.turn.permission import BEGUN, ModeChangedMeanwhile, Permission, require_mode
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.event import ApprovalAnswered, ApprovalAsked, Event, PlanChanged, ToolEnded, ToolStarted
from holdfast.model.message import Content, Outcome, Text, ToolCall
from holdfast.model.mode import Mode
from holdfast.model.provider import ToolSpec
from holdfast.model.session import Session
from holdfast.model.tool import Tool, ToolContext, ToolOutput, effect_of
from holdfast.store import durable_file
from holdfast.store.repos import approvals, sessions
from holdfast.tasks import run_all

log = logging.getLogger(__name__)
MAX_TEXT = 100_000
"""Characters of a result in the log and the context; a tool saves longer output in a file."""


class ToolboxPort(Protocol):
    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions for the model, in a stable order."""

    def get(self, name: str) -> Tool:
        """The tool with that name. Raises Invalid with a message that the model can act on."""

    def parse(self, name: str, arguments: str) -> dict[str, object]:
        """The validated arguments of the call. Raises Invalid with a message that the model can act on."""


class ToolCallSettings(msgspec.Struct, frozen=True):
    """The settings of tool calls."""

    toolbox: ToolboxPort
    approvals: Literal["ask", "allow", "deny"]
    approval_seconds: float | None
    """How long a question waits for its answer; None for no limit."""
    step_seconds: float
    workdir: Callable[[], Path]
    """Returns the working directory of the session at this moment."""
    files: Path
    terminal: str = "local"
    """The name of the session's terminal backend."""
    model: CallModelSettings | None = None
    """The session's model, for calls that ask for a completion."""
    delegation: DelegationSettings | None = None
    """What the session may delegate to child sessions; None for nothing."""
    memory: MemorySettings | None = None
    """The memory of the session; None if it has none."""


class ParsedCall(msgspec.Struct, frozen=True):
    """A call whose tool is known and whose arguments are valid."""

    call: ToolCall
    tool: Tool
    arguments: dict[str, object]
    context: ToolContext


async def run_calls(active: ActiveSession, settings: ToolCallSettings, calls: Sequence[ToolCall]) -> None:
    """Run the calls concurrently; afterwards each has exactly one result in the log."""
    known = await _parse(active, settings, calls)
    mode = active.session.summary.mode
    while True:
        permitted = [(parsed, _permit(active, settings, parsed, mode)) for parsed in known]
        ready = [parsed for parsed, found in permitted if found.action == "run"]
        try:
            await _begin(active, ready, mode)
            break
        except ModeChangedMeanwhile as e:
            mode = e.mode
    await run_all(
        *(_run(active, settings, parsed) for parsed in ready),
        *(_deny(active, parsed, found.why) for parsed, found in permitted if found.action == "deny"),
        *(_ask_first(active, settings, parsed, found) for parsed, found in permitted if found.action == "ask"),
    )


async def _parse(active: ActiveSession, settings: ToolCallSettings, calls: Sequence[ToolCall]) -> list[ParsedCall]:
    """The calls that can run; the others get their result."""
    parsed: list[ParsedCall] = []
    for call in calls:
        try:
            tool, arguments = settings.toolbox.get(call.name), settings.toolbox.parse(call.name, call.arguments)
        except Invalid as e:
            # Without its tool, a call that another worker began cannot be continued.
            outcome: Outcome = "unknown" if call.id in active.turn.started else "failed"
            await _end(active, call, outcome, ToolOutput.say(str(e), ok=False))
            continue
        parsed.append(ParsedCall(call, tool, arguments, _context(active, settings, call)))
    return parsed


async def _begin(active: ActiveSession, ready: Sequence[ParsedCall], mode: Mode) -> None:
    """Commit that the calls start, if the session is still in this mode. Raises ModeChangedMeanwhile."""
    if ready:
        started = [_started(active, parsed.call) for parsed in ready]
        await active.commit(started, check=lambda session: require_mode(session, mode))
    else:
        require_mode(await active.services.database.read(sessions.get, active.id), mode)


def _permit(active: ActiveSession, settings: ToolCallSettings, parsed: ParsedCall, mode: Mode) -> Permission:
    """What happens to the call in this permission mode. A denial by a person holds also in a more permissive one."""
    effect = effect_of(parsed.tool, parsed.arguments, parsed.context)
    is_asked = settings.approvals != "allow" or mode == "ask"
    findings = parsed.tool.risk(parsed.arguments, parsed.context) if is_asked else ()
    found = permission.decide(mode, settings.approvals, effect, findings)
    return found if found.action != "run" or not _was_denied(active, parsed.call) else permission.ASK_AGAIN


def _was_denied(active: ActiveSession, call: ToolCall) -> bool:
    """Whether the latest question about the call was answered with no, before its worker died."""
    for entry in reversed(active.entries[-200:]):
        event = entry.event
        if isinstance(event, ApprovalAsked | ApprovalAnswered) and event.call_id == call.id:
            return isinstance(event, ApprovalAnswered) and not event.allowed
    return False


async def _deny(active: ActiveSession, parsed: ParsedCall, why: str) -> None:
    """Give the call its result without running it; one that another worker began may have acted."""
    if parsed.call.id in active.turn.started:
        await _end(active, parsed.call, "unknown", ToolOutput.say(f"{BEGUN} {why}", ok=False))
    else:
        await _end(active, parsed.call, "denied", ToolOutput.say(why, ok=False))


def _started(active: ActiveSession, call: ToolCall) -> ToolStarted:
    """The event that the call may act from now on. A repeatable call that was cut off counts its attempts."""
    before = sum(
        isinstance(entry.event, ToolStarted) and entry.event.call_id == call.id for entry in active.entries[-200:]
    )
    return ToolStarted(turn_id=_turn_id(active), call_id=call.id, name=call.name, attempt=before + 1)


def _context(active: ActiveSession, settings: ToolCallSettings, call: ToolCall) -> ToolContext:
    host = HostSettings(
        settings.approvals, settings.approval_seconds, settings.model, settings.delegation, settings.memory
    )
    return ToolContext(
        session_id=active.id,
        turn_id=_turn_id(active),
        call_id=call.id,
        workdir=settings.workdir(),
        files=settings.files,
        terminal=settings.terminal,
        host=SessionHost(active, call, host),
        checkpoint=active.turn.checkpoint(call.id),
        skills=listed.sources if (listed := active.context.instructions.get("skills")) is not None else (),
    )


async def _ask_first(active: ActiveSession, settings: ToolCallSettings, parsed: ParsedCall, found: Permission) -> None:
    """Run the call only if a person, or a rule that a person made, or another permission mode allows it."""
    try:
        asked = await approval.propose(
            active, parsed.call, parsed.tool, parsed.arguments, found.findings, parsed.context
        )
    except Invalid as e:
        await _end(active, parsed.call, "failed", ToolOutput.say(str(e), ok=False))
        return

    def permit(mode: Mode) -> Permission:
        return _permit(active, settings, parsed, mode)

    decision = await approval.decide(active, asked, seconds=settings.approval_seconds, permit=permit)
    if not decision.allowed:
        await _deny(active, parsed, decision.why)
        return

    def check(session: Session) -> None:
        if permit(session.summary.mode).action == "deny":
            raise ModeChangedMeanwhile(session.summary.mode)

    try:
        await active.commit([*decision.events, _started(active, parsed.call)], check=check)
    except ModeChangedMeanwhile as e:
        await _deny(active, parsed, permit(e.mode).why)
        return
    context = msgspec.structs.replace(parsed.context, approved=decision.preview_digest)
    await _run(active, settings, msgspec.structs.replace(parsed, context=context))


async def _run(active: ActiveSession, settings: ToolCallSettings, parsed: ParsedCall) -> None:
    """Run the tool and commit its result."""
    call = parsed.call
    began = active.services.clock.monotonic()
    try:
        output = await _output(settings, parsed)
    finally:
        active.services.bus.end_output(active.id, call.id)
    millis = int((active.services.clock.monotonic() - began) * 1000)
    await _end(active, call, "ok" if output.ok else "failed", output, millis=millis)


async def _output(settings: ToolCallSettings, parsed: ParsedCall) -> ToolOutput:
    """The output of the tool. Every failure becomes output, too."""
    name = parsed.call.name
    try:
        durable_file.make_private_folders(parsed.context.workdir)
    except OSError as e:
        return ToolOutput.say(
            f"the working directory {parsed.context.workdir} cannot be created: {e.strerror}", ok=False
        )
    try:
        async with asyncio.timeout(settings.step_seconds):
            return await parsed.tool.run(parsed.arguments, parsed.context)
    except TimeoutError:
        return ToolOutput.say(f"{name} was stopped: it took longer than {settings.step_seconds:.0f} s.", ok=False)
    except HoldfastError as e:
        return ToolOutput.say(f"{name} failed: {e}", ok=False)
    except Exception as e:
        log.exception("tool %s raised an exception in session %s", name, parsed.context.session_id)
        return ToolOutput.say(f"{name} raised an exception: {type(e).__name__}: {e}", ok=False)


async def _end(active: ActiveSession, call: ToolCall, outcome: Outcome, output: ToolOutput, *, millis: int = 0) -> None:
    parts = tuple(_shortened(part) for part in output.parts) or (Text("(no output)"),)
    turn_id, at = _turn_id(active), active.services.clock.now()
    ended = ToolEnded(turn_id=turn_id, call_id=call.id, name=call.name, outcome=outcome, parts=parts, millis=millis)
    events: list[Event] = [ended]
    if output.plan is not None:
        events.append(PlanChanged(turn_id=turn_id, call_id=call.id, items=output.plan))
    await active.commit(events, lambda tx: approvals.withdraw_call(tx, active.id, turn_id, call.id, at=at))


def _shortened(part: Content) -> Content:
    if not isinstance(part, Text) or len(part.text) <= MAX_TEXT:
        return part
    return Text(omit_middle(part.text, MAX_TEXT, MAX_TEXT // 2))


def _turn_id(active: ActiveSession) -> str:
    assert active.turn.id is not None, "calls are run only within a turn"
    return active.turn.id
