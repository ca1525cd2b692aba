"""The chunks of a Chat Completions stream, added up to a reply. Pure: no SDK, no network.

Compatible servers differ: some number no calls, some number all of them 0, some repeat names or send arguments as
objects, some name no reason at the end. What can be understood is taken; what is missing is named.
"""

import json
from collections.abc import Iterator

import msgspec

from holdfast.model.asking import Delta, ReasoningDelta, Reply, Request, TextDelta
from holdfast.model.errors import BadReply, Unreachable
from holdfast.model.event import Usage
from holdfast.model.message import Part, Reasoning, Text
from holdfast.providers.openai_wire import NAME
from holdfast.providers.reply import Called, Made, counted, finished

FINISHES = {
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refused",
}
"""Any other reason is a plain stop, but for these:"""
BROKEN_OFF = {"error", "insufficient_system_resource"}

REASONING_FIELDS = ("reasoning_content", "reasoning")


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, object] | None = None


class _Call(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, object] | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | list[dict[str, object]] | None = None
    refusal: str | None = None
    reasoning_content: object = None
    reasoning: object = None
    reasoning_details: object = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, frozen=True):
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: dict[str, object] | None = None


class _Open:
    """A call that is still being told."""

    def __init__(self) -> None:
        self.id = self.name = self.arguments = ""
        self.extra: dict[str, object] = {}

    def add(self, told: _Call) -> None:
        self.id = self.id or told.id or ""
        self.extra.update(told.extra_content or {})
        function = told.function or _Function()
        if function.name and function.name != self.name:
            self.name += function.name
        if isinstance(function.arguments, dict):
            self.arguments = json.dumps(function.arguments)
        else:
            self.arguments += function.arguments or ""


class Draft:
    """A reply in the making."""

    def __init__(self, request: Request, *, server: str, who: str, called: Called) -> None:
        self._request = request
        self._server = server
        self._who = who
        self._called = called
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._field = ""
        self._details: list[dict[str, object]] = []
        self._calls: list[_Open] = []
        self._by_index: dict[int, _Open] = {}
        self._refused = False
        self._model = ""
        self._finish = ""
        self._usage: dict[str, object] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the model has said why it stopped; only the count of tokens may still come."""
        return bool(self._finish)

    def add(self, chunk: object) -> Iterator[Delta]:
        """Take one chunk and give what there is to show. Raises BadReply for a chunk that makes no sense."""
        try:
            read = msgspec.convert(chunk, _Chunk)
        except msgspec.ValidationError as e:
            raise BadReply(f"{self._who} sent a piece that cannot be read ({e}): ask again") from e
        self._model = read.model or self._model
        self._usage = read.usage or self._usage
        for choice in (read.choices or [])[:1]:
            yield from self._hear(choice.delta or _Delta())
            self._finish = choice.finish_reason or self._finish

    def reply(self) -> Reply:
        """The whole reply. Raises BadReply for one that is cut off or empty, Refused for a bare refusal."""
        if not self._finish:
            raise BadReply(f"{self._who} broke off in mid-reply: ask again")
        if self._finish in BROKEN_OFF:
            raise Unreachable(f"{self._who} failed in mid-reply: try again later or choose another model")
        finish = "refused" if self._refused else FINISHES.get(self._finish, "stop")
        made = [Made(call.id, call.name, call.arguments) for call in self._calls]
        calls = self._called.calls(made, cut=finish == "length")
        extra = {id: call.extra for id, call in zip(calls, self._calls, strict=True) if call.extra}
        parts: list[Part] = [*self._thoughts(extra), Text("".join(self._text)), *calls.values()]
        model = self._model or self._request.model
        return finished(parts, model=model, finish=finish, usage=self._counted(), who=self._who)

    def _hear(self, delta: _Delta) -> Iterator[Delta]:
        for field in REASONING_FIELDS:
            thought = getattr(delta, field)
            if isinstance(thought, str) and self._field in {"", field}:
                self._field = field
                yield from self._think(thought)
        for detail in delta.reasoning_details if isinstance(delta.reasoning_details, list) else ():
            if isinstance(detail, dict):
                self._keep(detail)
        if isinstance(delta.content, list):
            for item in delta.content:
                yield from self._hear_item(item)
        else:
            yield from self._say(delta.content or "")
        if delta.refusal:
            self._refused = True
            yield from self._say(delta.refusal)
        for told in delta.tool_calls or ():
            self._open(told).add(told)

    def _hear_item(self, item: dict[str, object]) -> Iterator[Delta]:
        """Mistral tells thoughts as items of the content."""
        thinking = item.get("thinking")
        if isinstance(thinking, list):
            yield from self._think("".join(str(inner.get("text", "")) for inner in thinking if isinstance(inner, dict)))
        elif isinstance(item.get("text"), str):
            yield from self._say(str(item["text"]))

    def _think(self, text: str) -> Iterator[Delta]:
        if text:
            self._reasoning.append(text)
            yield ReasoningDelta(text)

    def _say(self, text: str) -> Iterator[Delta]:
        if text:
            self._text.append(text)
            yield TextDelta(text)

    def _keep(self, detail: dict[str, object]) -> None:
        """Pieces of one detail come one by one; joined they are what the server wants back."""
        last = self._details[-1] if self._details else None
        if last is None or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in {"text", "summary", "data"} and isinstance(value, str):
                last[key] = f"{last.get(key) or ''}{value}"
            elif value is not None:
                last[key] = value

    def _open(self, told: _Call) -> _Open:
        """The call that a piece belongs to: a name with another id begins a new one, whatever its number."""
        named = told.function is not None and bool(told.function.name)
        if told.index is None:
            current = self._calls[-1] if self._calls and not (named or told.id) else None
        else:
            current = self._by_index.get(told.index)
        if current is None or (named and told.id and current.id not in {"", told.id}):
            current = _Open()
            self._calls.append(current)
        if told.index is not None:
            self._by_index[told.index] = current
        return current

    def _thoughts(self, extra: dict[str, dict[str, object]]) -> list[Reasoning]:
        opaque = {"server": self._server}
        if self._field:
            opaque["field"] = self._field
        if self._details:
            opaque["reasoning_details"] = json.dumps(self._details)
        if extra:
            opaque["extra_content"] = json.dumps(extra)
        text = "".join(self._reasoning)
        return [Reasoning(text, NAME, opaque)] if text or len(opaque) > 1 else []

    def _counted(self) -> Usage:
        usage = self._usage
        cost = usage.get("cost") if usage else None
        return Usage(
            tokens_in=counted(usage, "prompt_tokens"),
            tokens_out=counted(usage, "completion_tokens"),
            cache_read=counted(usage, "prompt_tokens_details", "cached_tokens")
            or counted(usage, "prompt_cache_hit_tokens"),
            cache_write=counted(usage, "prompt_tokens_details", "cache_write_tokens"),
            reasoning=counted(usage, "completion_tokens_details", "reasoning_tokens"),
            cost=float(cost) if isinstance(cost, int | float) else None,
        )
