"""A model that plays a script, for tests, demos and trying things out without any real model.

A script is a list of steps, one for each time the model is asked:

    {"window": 128000, "steps": [
        {"think": "Let me look.", "call": [{"name": "terminal", "arguments": {"command": "ls"}}]},
        {"fail": "rate_limited", "retry_after": 1.0, "times": 2},
        {"say": "There are three files.", "delay_seconds": 0.05},
        {}
    ]}

A step that gives a whole reply is *answered*; one that fails, hangs or is cut off is an *upset*. Which answered step
is due is read off the request: as many have been played as it holds whole replies. So a worker that died is continued
by the next one at the right step, and a fork plays on from where it branched. (After a compaction the count begins
again at what is still shown.) Upsets leave no whole reply behind. How many have been met before the due step
is therefore remembered by the provider or, if it was restarted, counted from the partial replies in the request.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from holdfast.model.asking import Delta, ReasoningDelta, Reply, Request, TextDelta
from holdfast.model.errors import (
    AuthFailed,
    BadReply,
    ContextTooLong,
    Invalid,
    NotFound,
    ProviderFailed,
    RateLimited,
    Refused,
    Unreachable,
)
from holdfast.model.event import Usage
from holdfast.model.message import Message, Part, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.session import one_line

WINDOW = 128_000
EXCERPT_LENGTH = 60
PIECE = re.compile(r"\s*\S+\s*|\s+")
USE_TOOL = re.compile(r"^use tool (\S+)[ \t]*(.*)$", re.MULTILINE)

Sleep = Callable[[float], Awaitable[object]]
Code = Literal["rate_limited", "unreachable", "context_too_long", "refused", "auth_failed", "bad_reply"]
FAILURES: dict[Code, type[ProviderFailed]] = {
    "rate_limited": RateLimited,
    "unreachable": Unreachable,
    "context_too_long": ContextTooLong,
    "refused": Refused,
    "auth_failed": AuthFailed,
    "bad_reply": BadReply,
}


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. Arguments given as a string are sent as they are, valid JSON or not."""

    name: str
    arguments: dict[str, object] | str = {}

    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens when the model is asked: it thinks, speaks and calls tools, then ends well or has one upset.

    An empty step is a model that says nothing.
    """

    think: str = ""
    say: str = ""
    call: tuple[Call, ...] = ()
    finish: Literal["", "stop", "length", "refused"] = ""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0
    """How long to wait before each piece."""
    fail: Code | None = None
    message: str = ""
    """What the failure says."""
    retry_after: float | None = None
    hang: bool = False
    """Stay silent after the last piece until the caller gives up."""
    cut_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Break off after this many pieces."""
    times: Annotated[int, msgspec.Meta(ge=1)] = 1
    """How often in a row an upset is met before the script goes on."""

    def __post_init__(self) -> None:
        if [self.fail is not None, self.hang, self.cut_after is not None].count(True) > 1:
            raise ValueError("a step can have one of fail, hang and cut_after")

    @property
    def is_upset(self) -> bool:
        return self.fail is not None or self.hang or self.cut_after is not None


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `loop` the script begins again after its last step; otherwise one call too many is refused."""

    steps: tuple[Step, ...]
    window: int = WINDOW
    loop: bool = False


def load(path: Path) -> Script:
    """The script in a JSON file. Raises NotFound or Invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Script)
    except OSError as e:
        raise NotFound(f"there is no script to read at {path}: {e.strerror}") from e
    except msgspec.MsgspecError as e:
        raise Invalid(f"{path} is not a script: {e}") from e


class ScriptedProvider:
    """Plays `echo` (also the answer to an empty name), `tools`, a script handed in by name, or a JSON file by its path.

    `echo` repeats the newest words of the user. `tools` calls what the lines `use tool NAME {json}` in them ask for,
    all in one reply, and sums up the results in the next.
    """

    name = "scripted"

    def __init__(self, scripts: Mapping[str, Script] | None = None, *, sleep: Sleep = asyncio.sleep) -> None:
        self._scripts = dict(scripts or {})
        self._sleep = sleep
        self._met: dict[tuple[str, int, int, int], int] = {}

    async def ask(self, request: Request) -> AsyncIterator[Delta | Reply]:
        step = self._due(request)
        for delta in itertools.islice(_deltas(step), step.cut_after):
            if step.delay_seconds:
                await self._sleep(step.delay_seconds)
            yield delta
        if step.is_upset:
            await _upset(step, request.model)
        yield _reply(step, request)

    def window(self, model: str) -> int | None:
        try:
            script = self._script(model)
        except (NotFound, Invalid):
            # Asking says what is wrong with the script; its window is simply not known.
            return None
        return script.window if script else WINDOW

    async def close(self) -> None:
        self._met.clear()

    def _script(self, model: str) -> Script | None:
        """The script of that name, None for what is built in."""
        if model in ("", "echo", "tools"):
            return None
        if model not in self._scripts:
            if not model.endswith(".json"):
                raise NotFound(
                    f"no script {model}: name a .json file, or one of {', '.join(('echo', 'tools', *self._scripts))}"
                )
            self._scripts[model] = load(Path(model).expanduser())
        return self._scripts[model]

    def _due(self, request: Request) -> Step:
        try:
            script = self._script(request.model)
        except (NotFound, Invalid) as e:
            raise Refused(str(e)) from e
        if script is None:
            return _tools(request) if request.model == "tools" else _echo(request)
        answered = sum(message.role == "assistant" and not message.partial for message in request.messages)
        upsets, step = _stretch(script, answered)
        first = request.messages[0] if request.messages else None
        session = (request.model, first.seq if first else 0, first.at if first else 0)
        self._met.pop((*session, answered - 1), None)
        met = max(self._met.get((*session, answered), 0), _partials(request.messages))
        if met < len(upsets):
            self._met[*session, answered] = met + 1
            return upsets[met]
        if step is None:
            raise Refused(f"the script {request.model} has no answer number {answered + 1}")
        return step


def _stretch(script: Script, answered: int) -> tuple[list[Step], Step | None]:
    """The next answered step and the upsets that stand before it."""
    upsets: list[Step] = []
    left = answered
    for step in _played(script):
        if step.is_upset:
            upsets.extend([step] * step.times)
        elif left == 0:
            return upsets, step
        else:
            left -= 1
            upsets.clear()
    return upsets, None


def _played(script: Script) -> Iterator[Step]:
    yield from script.steps
    while script.loop and not all(step.is_upset for step in script.steps):
        yield from script.steps


def _partials(messages: Sequence[Message]) -> int:
    """How many partial replies came after the last whole one."""
    count = 0
    for message in reversed(messages):
        if message.role == "assistant":
            if not message.partial:
                break
            count += 1
    return count


def _deltas(step: Step) -> Iterator[Delta]:
    yield from (ReasoningDelta(piece) for piece in PIECE.findall(step.think))
    yield from (TextDelta(piece) for piece in PIECE.findall(step.say))


async def _upset(step: Step, model: str) -> None:
    message = step.message or f"the script {model} says so"
    if step.hang:
        await asyncio.Event().wait()
    if step.fail == "rate_limited":
        raise RateLimited(message, step.retry_after)
    if step.fail is not None:
        raise FAILURES[step.fail](message)
    raise BadReply(f"the reply was cut off after {step.cut_after} pieces")


def _reply(step: Step, request: Request) -> Reply:
    parts: list[Part] = []
    if step.think:
        parts.append(Reasoning(step.think, provider=ScriptedProvider.name))
    if step.say:
        parts.append(Text(step.say))
    # Numbered by the place in the log, so that a repeat has the same ids and no other reply has them.
    place = max((message.seq for message in request.messages), default=0)
    parts += [ToolCall(f"call-{place}-{n}", call.name, call.text()) for n, call in enumerate(step.call, 1)]
    finish = step.finish or ("tool_calls" if step.call else "stop")
    return Reply(parts=tuple(parts), model=request.model or "echo", finish=finish, usage=_usage(step, request))


def _usage(step: Step, request: Request) -> Usage:
    """A word is a token, so that counts can be foretold."""
    heard = [request.system, *(message.text for message in request.messages)]
    called = [f"{call.name} {call.text()}" for call in step.call]
    thought = len(step.think.split())
    return Usage(
        tokens_in=sum(len(text.split()) for text in heard),
        tokens_out=thought + sum(len(text.split()) for text in (step.say, *called)),
        reasoning=thought,
    )


def _echo(request: Request) -> Step:
    words = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
    return Step(say=f"You said: {words}")


def _tools(request: Request) -> Step:
    newest = max((n for n, message in enumerate(request.messages) if message.role == "user"), default=-1)
    since = request.messages[newest + 1 :]
    names = {call.id: call.name for message in since for call in message.tool_calls}
    results = [part for message in since for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return Step(say="done: " + "; ".join(_sum_up(names.get(part.call_id, part.call_id), part) for part in results))
    wanted = USE_TOOL.findall(request.messages[newest].text) if newest >= 0 else []
    return Step(call=tuple(Call(name, text.strip() or "{}") for name, text in wanted)) if wanted else _echo(request)


def _sum_up(name: str, result: ToolResult) -> str:
    outcome = "" if result.outcome == "ok" else f" {result.outcome}"
    return f"{name}{outcome}: {one_line(text_of(result.parts))[:EXCERPT_LENGTH]}"
