"""A model that plays a script, for tests and demos without a real model.

A script is a list of steps, one for each request:

    {"window": 128000, "steps": [
        {"think": "Let me look.", "call": [{"name": "terminal", "arguments": {"command": "ls"}}]},
        {"fail": "rate_limited", "retry_after": 1.0, "times": 2},
        {"say": "There are three files.", "delay_seconds": 0.05},
        {}
    ]}

A step with a complete reply is an *answer*; one that fails, hangs or is cut off is a *failure*. The request determines
the next answer: the number of complete replies in it is the number of answers played. So after a crash the next worker
continues at the right step, and a fork continues from its branch point. (After a compaction only the replies still in
the context count.) Failures leave no complete reply. The provider remembers how many it has played before the next
answer or, after a restart, counts the partial replies in the request.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

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
from holdfast.model.provider import Delta, ModelReply, ModelRequest, ReasoningDelta, TextDelta
from holdfast.model.session import collapse_line

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


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. Arguments given as a string are sent unchanged, valid JSON or not."""

    name: str
    arguments: dict[str, object] | str = {}

    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request: the model reasons, answers and calls tools, then succeeds or fails.

    An empty step is an empty reply.
    """

    think: str = ""
    say: str = ""
    call: tuple[ScriptedCall, ...] = ()
    finish: Literal["", "stop", "length", "refused"] = ""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0
    """The delay before each delta."""
    fail: Code | None = None
    message: str = ""
    """The message of the failure."""
    retry_after: float | None = None
    hang: bool = False
    """Send nothing after the last delta until the caller gives up."""
    cut_after: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """End the stream after this many deltas."""
    times: Annotated[int, msgspec.Meta(ge=1)] = 1
    """How often in a row a failure is played before the script continues."""

    def __post_init__(self) -> None:
        if [self.fail is not None, self.hang, self.cut_after is not None].count(True) > 1:
            raise ValueError("a step can have one of fail, hang and cut_after")

    @property
    def is_failure(self) -> bool:
        return self.fail is not None or self.hang or self.cut_after is not None


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `loop` the script starts again after its last step; otherwise a further request is refused."""

    steps: tuple[ScriptStep, ...]
    window: int = WINDOW
    loop: bool = False


def load_script(path: Path) -> Script:
    """The script in a JSON file. Raises NotFound or Invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Script)
    except OSError as e:
        raise NotFound(f"cannot read the script {path}: {e.strerror}") from e
    except msgspec.MsgspecError as e:
        raise Invalid(f"{path} is not a script: {e}") from e


class ScriptedProvider:
    """Plays `echo` (the default), `tools`, a script from `scripts` by its name, or a JSON file by its path.

    `echo` repeats the newest user message. `tools` makes the calls that its lines `use tool NAME {json}` ask for, all in
    one reply, and summarizes the results in the next reply.
    """

    name = "scripted"

    def __init__(self, scripts: Mapping[str, Script] | None = None, *, sleep: Sleep = asyncio.sleep) -> None:
        self._scripts = dict(scripts or {})
        self._sleep = sleep
        self._failures_seen: dict[tuple[str, int, int, int], int] = {}

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        step = self._next_step(request)
        for delta in itertools.islice(_deltas(step), step.cut_after):
            if step.delay_seconds:
                await self._sleep(step.delay_seconds)
            yield delta
        if step.is_failure:
            await _raise_failure(step, request.model)
        yield _reply(step, request)

    def window(self, model: str) -> int | None:
        try:
            script = self._script(model)
        except (NotFound, Invalid):
            # `ask` reports what is wrong with the script; here the window is just unknown.
            return None
        return script.window if script else WINDOW

    async def close(self) -> None:
        self._failures_seen.clear()

    def _script(self, model: str) -> Script | None:
        """The script of that name, None for a built-in one."""
        if model in ("", "echo", "tools"):
            return None
        if model not in self._scripts:
            if not model.endswith(".json"):
                raise NotFound(
                    f"no script {model}: name a .json file, or one of {', '.join(('echo', 'tools', *self._scripts))}"
                )
            self._scripts[model] = load_script(Path(model).expanduser())
        return self._scripts[model]

    def _next_step(self, request: ModelRequest) -> ScriptStep:
        try:
            script = self._script(request.model)
        except (NotFound, Invalid) as e:
            raise Refused(str(e)) from e
        if script is None:
            return _tools(request) if request.model == "tools" else _echo(request)
        answered = sum(message.role == "assistant" and not message.partial for message in request.messages)
        failures, step = _find_step(script, answered)
        first = request.messages[0] if request.messages else None
        session = (request.model, first.seq if first else 0, first.at if first else 0)
        self._failures_seen.pop((*session, answered - 1), None)
        seen = max(self._failures_seen.get((*session, answered), 0), _count_partial(request.messages))
        if seen < len(failures):
            self._failures_seen[*session, answered] = seen + 1
            return failures[seen]
        if step is None:
            raise Refused(f"the script {request.model} has no answer number {answered + 1}")
        return step


def _find_step(script: Script, answered: int) -> tuple[list[ScriptStep], ScriptStep | None]:
    """The next answer and the failures before it."""
    failures: list[ScriptStep] = []
    left = answered
    for step in _iterate(script):
        if step.is_failure:
            failures.extend([step] * step.times)
        elif left == 0:
            return failures, step
        else:
            left -= 1
            failures.clear()
    return failures, None


def _iterate(script: Script) -> Iterator[ScriptStep]:
    yield from script.steps
    while script.loop and not all(step.is_failure for step in script.steps):
        yield from script.steps


def _count_partial(messages: Sequence[Message]) -> int:
    """The number of partial replies after the last complete one."""
    count = 0
    for message in reversed(messages):
        if message.role == "assistant":
            if not message.partial:
                break
            count += 1
    return count


def _deltas(step: ScriptStep) -> Iterator[Delta]:
    yield from (ReasoningDelta(piece) for piece in PIECE.findall(step.think))
    yield from (TextDelta(piece) for piece in PIECE.findall(step.say))


async def _raise_failure(step: ScriptStep, model: str) -> None:
    message = step.message or f"failure in the script {model}"
    if step.hang:
        await asyncio.Event().wait()
    if step.fail == "rate_limited":
        raise RateLimited(message, step.retry_after)
    if step.fail is not None:
        raise FAILURES[step.fail](message)
    raise BadReply(f"the reply ended after {step.cut_after} deltas")


def _reply(step: ScriptStep, request: ModelRequest) -> ModelReply:
    parts: list[Part] = []
    if step.think:
        parts.append(Reasoning(step.think, provider=ScriptedProvider.name))
    if step.say:
        parts.append(Text(step.say))
    # Numbered by position in the log, so that a repeated reply has the same ids and no other reply has them.
    seq = max((message.seq for message in request.messages), default=0)
    parts += [ToolCall(f"call-{seq}-{n}", call.name, call.text()) for n, call in enumerate(step.call, 1)]
    finish = step.finish or ("tool_calls" if step.call else "stop")
    return ModelReply(parts=tuple(parts), model=request.model or "echo", finish=finish, usage=_usage(step, request))


def _usage(step: ScriptStep, request: ModelRequest) -> Usage:
    """One token per word, so that counts are predictable."""
    inputs = [request.system, *(message.text for message in request.messages)]
    called = [f"{call.name} {call.text()}" for call in step.call]
    thought = len(step.think.split())
    return Usage(
        tokens_in=sum(len(text.split()) for text in inputs),
        tokens_out=thought + sum(len(text.split()) for text in (step.say, *called)),
        reasoning=thought,
    )


def _echo(request: ModelRequest) -> ScriptStep:
    text = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
    return ScriptStep(say=f"You said: {text}")


def _tools(request: ModelRequest) -> ScriptStep:
    newest = max((n for n, message in enumerate(request.messages) if message.role == "user"), default=-1)
    since = request.messages[newest + 1 :]
    names = {call.id: call.name for message in since for call in message.tool_calls}
    results = [part for message in since for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return ScriptStep(
            say="done: " + "; ".join(_summarize(names.get(part.call_id, part.call_id), part) for part in results)
        )
    wanted = USE_TOOL.findall(request.messages[newest].text) if newest >= 0 else []
    return (
        ScriptStep(call=tuple(ScriptedCall(name, text.strip() or "{}") for name, text in wanted))
        if wanted
        else _echo(request)
    )


def _summarize(name: str, result: ToolResult) -> str:
    outcome = "" if result.outcome == "ok" else f" {result.outcome}"
    return f"{name}{outcome}: {collapse_line(text_of(result.parts))[:EXCERPT_LENGTH]}"
