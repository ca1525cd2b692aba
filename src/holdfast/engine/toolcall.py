"""The effects ledger: each call of a tool is asked about, started, done and recorded, in that order."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from holdfast.engine import replies
from holdfast.engine.hand import Hand
from holdfast.engine.together import all_of
from holdfast.model.asking import ToolSpec
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.event import ApprovalAsked, ToolEnded, ToolStarted
from holdfast.model.message import Content, Outcome, Text, ToolCall
from holdfast.model.tool import Output, Scene, Tool
from holdfast.store import approvals
from holdfast.store.database import Transaction

log = logging.getLogger(__name__)
MAX_TEXT = 100_000
"""Characters of a result that go into the log and the context; a tool that has more to say keeps it in a file."""


class Toolbox(Protocol):
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told, in an order that does not change."""

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises Invalid with a sentence the model can act on."""

    def parse(self, name: str, arguments: str) -> dict[str, object]:
        """The call's arguments, checked. Raises Invalid with a sentence the model can act on."""


class Acting(msgspec.Struct, frozen=True):
    """How calls are run."""

    toolbox: Toolbox
    approvals: Literal["ask", "allow", "deny"]
    approval_seconds: float | None
    """How long a question waits for its answer; None for as long as it takes."""
    step_seconds: float
    workdir: Path
    files: Path


class Ready(msgspec.Struct, frozen=True):
    """A call that can be run: its tool is known and its arguments fit."""

    call: ToolCall
    tool: Tool
    arguments: dict[str, object]


async def act(hand: Hand, acting: Acting, calls: Sequence[ToolCall]) -> None:
    """Run the calls side by side; afterwards each has exactly one result in the log."""
    ready: list[Ready] = []
    asked: list[tuple[Ready, str]] = []
    for call in calls:
        try:
            able = Ready(call, acting.toolbox.get(call.name), acting.toolbox.parse(call.name, call.arguments))
        except Invalid as e:
            await _end(hand, call, "failed", Output.say(str(e), ok=False))
            continue
        risk = None if acting.approvals == "allow" else able.tool.risk(able.arguments)
        if risk is None:
            ready.append(able)
        else:
            asked.append((able, risk))
    if ready:
        await hand.commit([_started(hand, able.call) for able in ready])
    await all_of(
        *(_run(hand, acting, able) for able in ready), *(_ask_first(hand, acting, able, risk) for able, risk in asked)
    )


def _started(hand: Hand, call: ToolCall) -> ToolStarted:
    """The fact that the call may act from now on; a repeatable one that was cut off counts its attempts."""
    before = sum(
        isinstance(entry.event, ToolStarted) and entry.event.call_id == call.id for entry in hand.entries[-200:]
    )
    return ToolStarted(turn_id=_turn_id(hand), call_id=call.id, name=call.name, attempt=before + 1)


async def _ask_first(hand: Hand, acting: Acting, able: Ready, risk: str) -> None:
    """Run the call only if a person allows it."""
    if acting.approvals == "deny":
        refusal = f"Not run: {risk}, and such calls are denied here."
        await _end(hand, able.call, "denied", Output.say(refusal, ok=False))
        return
    allowed = await _answer(hand, acting, able.call, risk)
    if allowed:
        await hand.commit([_started(hand, able.call)])
        await _run(hand, acting, able)
        return
    why = "nobody answered in time" if allowed is None else await _refusal(hand, able.call)
    await _end(hand, able.call, "denied", Output.say(f"Not run: {risk}, so a person was asked, and {why}.", ok=False))


async def _refusal(hand: Hand, call: ToolCall) -> str:
    reason = await hand.ground.database.read(approvals.reason, hand.id, _turn_id(hand), call.id)
    return f"the person said no: {reason}" if reason else "the person said no"


async def _answer(hand: Hand, acting: Acting, call: ToolCall, question: str) -> bool | None:
    """The person's word; None if it did not come in time. A question that was put before a restart is not put again."""
    turn_id = _turn_id(hand)
    place = (hand.id, turn_id, call.id)
    database = hand.ground.database
    if await database.read(approvals.get, *place) is None:
        asked = ApprovalAsked(turn_id=turn_id, call_id=call.id, question=question)

        at, known = hand.ground.clock.now(), tuple(hand.entries)

        def put(tx: Transaction) -> None:
            approvals.ask(tx, *place, question, at=at)
            replies.ask(tx, hand.id, known, asked, call, at=at)

        await hand.commit([asked], put)
    try:
        async with asyncio.timeout(acting.approval_seconds):
            async for _ in database.listen(hand.id):
                found = await database.read(approvals.get, *place)
                if found is not None and found.allowed is not None:
                    return bool(found.allowed)
    except TimeoutError:
        pass
    return await _close_question(hand, place)


async def _close_question(hand: Hand, place: tuple[str, str, str]) -> bool | None:
    """Withdraw a question whose time is up, unless the answer came at the last moment."""

    def work(tx: Transaction) -> bool | None:
        found = approvals.get(tx, *place)
        if found is not None and found.allowed is not None:
            return bool(found.allowed)
        approvals.answer(tx, *place, allowed=False, by="time limit", at=hand.ground.clock.now())
        return None

    return await hand.ground.database.write(work)


async def _run(hand: Hand, acting: Acting, able: Ready) -> None:
    """Act, and commit the result."""
    call = able.call
    scene = Scene(
        session_id=hand.id, turn_id=_turn_id(hand), call_id=call.id, workdir=acting.workdir, files=acting.files
    )
    began = hand.ground.clock.monotonic()
    output = await _output(acting, able, scene)
    millis = int((hand.ground.clock.monotonic() - began) * 1000)
    await _end(hand, call, "ok" if output.ok else "failed", output, millis=millis)


async def _output(acting: Acting, able: Ready, scene: Scene) -> Output:
    """What the tool says; a failure of any kind is something it says, too."""
    name = able.call.name
    try:
        async with asyncio.timeout(acting.step_seconds):
            return await able.tool.run(able.arguments, scene)
    except TimeoutError:
        return Output.say(f"{name} was stopped: it took longer than {acting.step_seconds:.0f} s.", ok=False)
    except HoldfastError as e:
        return Output.say(f"{name} failed: {e}", ok=False)
    except Exception as e:
        log.exception("tool %s broke in session %s", name, scene.session_id)
        return Output.say(f"{name} broke: {type(e).__name__}: {e}", ok=False)


async def _end(hand: Hand, call: ToolCall, outcome: Outcome, output: Output, *, millis: int = 0) -> None:
    parts = tuple(_shortened(part) for part in output.parts) or (Text("(no output)"),)
    ended = ToolEnded(
        turn_id=_turn_id(hand), call_id=call.id, name=call.name, outcome=outcome, parts=parts, millis=millis
    )
    await hand.commit([ended])


def _shortened(part: Content) -> Content:
    if not isinstance(part, Text) or len(part.text) <= MAX_TEXT:
        return part
    half = MAX_TEXT // 2
    left_out = len(part.text) - 2 * half
    return Text(f"{part.text[:half]}\n[… {left_out:,} characters left out …]\n{part.text[-half:]}")


def _turn_id(hand: Hand) -> str:
    assert hand.turn.id is not None, "calls are run only within a turn"
    return hand.turn.id
