"""What a request for a chat completion may hold. Everything is honoured or refused by name; nothing is ignored."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.api.content import Content, content, text_only
from holdfast.api.errors import Refusal
from holdfast.engine.branches import Given
from holdfast.model.event import Offer, Terms
from holdfast.model.message import ToolCall

T = TypeVar("T")
MAX_MESSAGES = 20_000
MAX_TOOLS = 512
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
OUT_OF_RANGE = re.compile(r"Expected `\w+( \| null)?` (>=|<=|of length)")
ROLES = ("system", "developer", "user", "assistant", "tool")

NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "metadata": ({},),
}
"""Parameters that change nothing when they have one of these values, or null: many clients send them always."""

PASSED_ON = (
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "parallel_tool_calls",
    "service_tier",
    "response_format",
    "stop",
    "seed",
    "reasoning_effort",
    "verbosity",
)
"""Parameters that go to the model as they are, if its provider is one that knows them."""
KNOWN_TO = ("openai",)


class Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True):
    type: Literal["function"]
    function: Function


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"


class Called(msgspec.Struct, frozen=True):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The parameters that are honoured whatever the model."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: bool | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the engine understands it."""

    model: str
    messages: tuple[Given, ...]
    system: str | None
    terms: Terms
    stream: bool
    include_usage: bool
    who: str
    cache_key: str | None
    digest: str
    spelled: dict[str, str] = {}
    """What the client calls the options, where that is something else."""


def parse(body: bytes) -> Asked:
    """Read the body of a request. Raises a Refusal that names what is wrong."""
    data = decode(body)
    request = convert({name: data[name] for name in data if name in ChatRequest.__struct_fields__}, ChatRequest)
    options = _options(data)
    if not request.messages:
        raise Refusal(400, "invalid_request", "messages must not be empty", "messages")
    if len(request.messages) > MAX_MESSAGES:
        told = f"{len(request.messages):,} messages are over the limit of {MAX_MESSAGES:,}; name the session and send only new ones"
        raise Refusal(400, "too_many_messages", told, "messages")
    given = [_given(message, f"messages[{n}]") for n, message in enumerate(request.messages)]
    system = [text for message, text in given if isinstance(text, str)]
    return Asked(
        model=request.model,
        messages=tuple(one for _, one in given if isinstance(one, Given)),
        system="\n\n".join(system) if system else None,
        terms=_terms(request, options),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        who=request.safety_identifier or request.user or "",
        cache_key=request.prompt_cache_key,
        digest=digest_of(data),
    )


def decode(body: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise Refusal(400, "invalid_json", f"the body is not JSON: {e}") from e
    if not isinstance(data, dict):
        raise Refusal(400, "invalid_json", "the body must be a JSON object")
    return data


def convert(data: object, kind: type[T], *, strict: bool = True) -> T:
    """Read data as the type; if not `strict`, numbers may come as text. Raises a Refusal that names the place."""
    try:
        return msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as e:
        what, _, where = str(e).partition(" - at `$")
        path = where.rstrip("`").lstrip(".") or None
        name = re.match(r"Object missing required field `(\w+)`", what)
        if name is not None:
            path = f"{path}.{name[1]}" if path else name[1]
        told = f"{path or 'the body'}: {what.replace('`', '')}"
        if OUT_OF_RANGE.match(what):
            raise Refusal(400, "invalid_value", told, path) from e
        raise Refusal(400, "invalid_type", told, path) from e


def _options(data: dict[str, Any]) -> dict[str, str]:
    """The parameters to pass on. Raises a Refusal for one that can be neither honoured nor passed on."""
    passed: dict[str, str] = {}
    for name, value in data.items():
        if name in ChatRequest.__struct_fields__ or value is None:
            continue
        if any((value == same and type(value) is not bool) or value is same for same in NEUTRAL.get(name, ())):
            continue
        if name not in PASSED_ON:
            raise Refusal(400, "unsupported_parameter", f"the parameter {name} is not supported here", name)
        passed[name] = json.dumps(value)
    return passed


def _given(message: Message, where: str) -> tuple[Message, Given | str]:
    """The message, or the words of one that is system text."""
    if message.role in ("system", "developer"):
        return message, text_only(message.content, where)
    if message.role == "assistant":
        return message, _answer(message, where)
    if message.tool_calls:
        raise Refusal(400, "invalid_request", f"{where}: only the assistant calls tools", f"{where}.tool_calls")
    if message.role == "tool":
        if not message.tool_call_id:
            told = f"{where}: a tool message needs the tool_call_id that it answers"
            raise Refusal(400, "invalid_request", told, f"{where}.tool_call_id")
        parts = content(message.content, f"{where}.content")
        return message, Given(role="tool", parts=parts, call_id=message.tool_call_id, name=message.name or "")
    if message.content is None:
        raise Refusal(400, "invalid_request", f"{where}: the content is missing", f"{where}.content")
    return message, Given(role="user", parts=content(message.content, f"{where}.content"), name=message.name or "")


def _answer(message: Message, where: str) -> Given:
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    if len({call.id for call in calls}) < len(calls) or not all(call.id for call in calls):
        raise Refusal(400, "invalid_request", f"{where}: each call needs an id of its own", f"{where}.tool_calls")
    parts = content(message.content, f"{where}.content") if message.content is not None else ()
    return Given(role="assistant", parts=parts, calls=calls)


def _terms(request: ChatRequest, options: dict[str, str]) -> Terms:
    if request.temperature is not None and not 0 <= request.temperature <= 2:
        raise Refusal(400, "invalid_value", "temperature must be from 0 to 2", "temperature")
    limit = request.max_completion_tokens or request.max_tokens
    for name in ("max_tokens", "max_completion_tokens"):
        value = getattr(request, name)
        if value is not None and not 1 <= value < 2**31:
            raise Refusal(400, "invalid_value", f"{name} must be at least 1", name)
    tools = tuple(offer(tool.function, f"tools[{n}]") for n, tool in enumerate(request.tools or ()))
    if len({tool.name for tool in tools}) < len(tools):
        raise Refusal(400, "invalid_value", "two tools have the same name", "tools")
    if len(tools) > MAX_TOOLS:
        raise Refusal(400, "invalid_value", f"more than {MAX_TOOLS} tools", "tools")
    terms = Terms(tools=tools, temperature=request.temperature, max_tokens=limit, options=options)
    return chosen(request.tool_choice, terms)


def offer(function: Function, where: str) -> Offer:
    """A tool of the client's. Raises a Refusal if it cannot be one."""
    if not NAME.fullmatch(function.name):
        told = f"{where}: a tool's name has up to 64 letters, digits, _ and -"
        raise Refusal(400, "invalid_value", told, f"{where}.function.name")
    schema = function.parameters or {}
    if schema and schema.get("type") != "object":
        told = f"{where}: the parameters must be a JSON schema of type object"
        raise Refusal(400, "invalid_value", told, f"{where}.function.parameters")
    if function.strict:
        raise Refusal(
            400, "unsupported_parameter", f"{where}: strict is not supported here", f"{where}.function.strict"
        )
    return Offer(name=function.name, description=function.description or "", parameters=json.dumps(schema))


def chosen(choice: str | dict[str, Any] | None, terms: Terms) -> Terms:
    """The terms with what the client says about calling tools. One that must be called can only be the client's."""
    if choice in (None, "auto"):
        return terms
    if choice == "none":
        return msgspec.structs.replace(terms, use_tools=False)
    names = [tool.name for tool in terms.tools]
    if (choice == "required" and names) or _name_in(choice) in names:
        options = {**terms.options, "tool_choice": json.dumps(choice)}
        return msgspec.structs.replace(terms, options=options, our_tools=False)
    told = "tool_choice must be auto, none, required (with tools) or one of the request's tools"
    raise Refusal(400, "invalid_value", told, "tool_choice")


def _name_in(choice: object) -> object:
    function = choice.get("function") if isinstance(choice, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def refuse_unknown_to(provider: str, terms: Terms, spelled: Mapping[str, str] | None = None) -> None:
    """Raise a Refusal for a parameter that the chosen model's provider does not know."""
    if provider not in KNOWN_TO and terms.options:
        name = next(iter(terms.options))
        name = (spelled or {}).get(name, name)
        told = f"the parameter {name} is not supported with models of {provider}"
        raise Refusal(400, "unsupported_parameter", told, name)


def digest_of(data: dict[str, Any]) -> str:
    """What was asked, whichever way the answer is to come."""
    asked = {name: value for name, value in data.items() if name not in ("stream", "stream_options")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
