"""What a request for a response may hold. Everything is honoured or refused by name; nothing is ignored."""

import json
from typing import Any, Literal

import msgspec

from holdfast.api import items, shapes
from holdfast.api.errors import Refusal
from holdfast.api.response_document import SPACES
from holdfast.api.shapes import Asked, Function
from holdfast.engine.branches import Given
from holdfast.model.event import Offer, Terms

Object = dict[str, Any]
MAX_METADATA = 16
INCLUDED = ("reasoning.encrypted_content",)
"""What clients ask for that they do not need: the log keeps the model's reasoning, and no client has to carry it."""
ECHOED = (
    "background", "conversation", "instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
    "previous_response_id", "prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "store", "text",
    "tool_choice", "top_p", "truncation", "user",
)  # fmt: skip
"""What a client is told again with its response."""
NEUTRAL: dict[str, tuple[object, ...]] = {
    "top_p": (1,),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto", "default"),
    "top_logprobs": (0,),
}
"""Values that change nothing. Null never does."""
PASSED_ON = ("top_p", "parallel_tool_calls", "service_tier")


class Tool(msgspec.Struct, frozen=True):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class Format(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: Object | None = None
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Format | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_obfuscation: Literal[False] | None = None


class Request(msgspec.Struct, frozen=True):
    """The parameters that are honoured whatever the model."""

    model: str
    input: str | list[Object]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[Object] | None = None
    tool_choice: str | Object | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    conversation: str | Object | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    client_metadata: Object | None = None


class Wanted(Asked, frozen=True, kw_only=True):
    """A request as the engine understands it; `messages` are made of `items` once those it refers to are found."""

    items: tuple[items.Item, ...]
    previous: str | None
    conversation: str | None
    background: bool


def parse(body: bytes) -> Wanted:
    """Read the body of a request. Raises a Refusal that names what is wrong."""
    data = shapes.decode(body)
    request = shapes.convert({name: data[name] for name in data if name in Request.__struct_fields__}, Request)
    _refuse_contradictions(request)
    found = items.read(request.input)
    return Wanted(
        model=request.model,
        messages=(),
        items=tuple(found),
        system=items.system_text(found),
        terms=_terms(request, data),
        stream=bool(request.stream),
        include_usage=True,
        who=request.safety_identifier or request.user or "",
        cache_key=request.prompt_cache_key,
        digest=shapes.digest_of(data),
        spelled={"reasoning_effort": "reasoning", "response_format": "text.format", "verbosity": "text.verbosity"},
        previous=request.previous_response_id,
        conversation=_conversation(request.conversation),
        background=bool(request.background),
    )


def _refuse_contradictions(request: Request) -> None:
    if request.previous_response_id is not None and request.conversation is not None:
        told = "previous_response_id and conversation both say what to go on from; send one of them"
        raise Refusal(400, "invalid_value", told, "conversation")
    if request.background and request.store is False:
        raise Refusal(400, "invalid_value", "a response in the background must be stored", "store")
    if len(request.metadata or ()) > MAX_METADATA:
        raise Refusal(400, "invalid_value", f"metadata has up to {MAX_METADATA} pairs", "metadata")
    for name in request.include or ():
        if name not in INCLUDED:
            raise Refusal(400, "unsupported_parameter", f"include: {name} is not supported here", "include")


def _conversation(given: str | Object | None) -> str | None:
    found = given.get("id") if isinstance(given, dict) else given
    if found is not None and (not isinstance(found, str) or not found):
        raise Refusal(400, "invalid_type", "conversation must be a name, or an object with an id", "conversation")
    return found


def _terms(request: Request, data: Object) -> Terms:
    if request.temperature is not None and not 0 <= request.temperature <= 2:
        raise Refusal(400, "invalid_value", "temperature must be from 0 to 2", "temperature")
    if request.max_output_tokens is not None and not 1 <= request.max_output_tokens < 2**31:
        raise Refusal(400, "invalid_value", "max_output_tokens must be at least 1", "max_output_tokens")
    terms = Terms(
        tools=_tools(request.tools or []),
        temperature=request.temperature,
        max_tokens=request.max_output_tokens,
        options=_options(request, data),
        instructions=request.instructions or None,
        echo=_echo(request, data),
    )
    return shapes.chosen(_choice(request.tool_choice), terms)


def _tools(given: list[Object]) -> tuple[Offer, ...]:
    found: list[Offer] = []
    for n, tool in enumerate(given):
        if tool.get("type") == "namespace" and isinstance(tool.get("tools"), list):
            space = tool.get("name")
            if not isinstance(space, str) or not space:
                raise Refusal(400, "invalid_type", f"tools[{n}].name must be a text", f"tools[{n}].name")
            found += [_offer(one, f"tools[{n}].tools[{m}]", space) for m, one in enumerate(tool["tools"])]
        else:
            found.append(_offer(tool, f"tools[{n}]"))
    if len({tool.name for tool in found}) < len(found):
        raise Refusal(400, "invalid_value", "two tools have the same name", "tools")
    if len(found) > shapes.MAX_TOOLS:
        raise Refusal(400, "invalid_value", f"more than {shapes.MAX_TOOLS} tools", "tools")
    return tuple(found)


def _offer(given: Object, where: str, space: str = "") -> Offer:
    if not isinstance(given, dict) or given.get("type") != "function":
        kind = given.get("type") if isinstance(given, dict) else given
        told = f"{where}: tools of the type {kind!r} are not supported here; a client's tools are functions"
        raise Refusal(400, "unsupported_parameter", told, f"{where}.type")
    tool = shapes.convert(given, Tool)
    name = items.in_namespace(space, tool.name) if space else tool.name
    return shapes.offer(Function(name, tool.description, tool.parameters, tool.strict), where)


def _choice(given: str | Object | None) -> str | Object | None:
    """The choice in the words of the Chat Completions API."""
    if isinstance(given, dict) and given.get("type") == "function":
        return {"type": "function", "function": {"name": given.get("name")}}
    return given


def _options(request: Request, data: Object) -> dict[str, str]:
    """The parameters to pass on. Raises a Refusal for one that can be neither honoured nor passed on."""
    passed: dict[str, str] = {}
    for name, value in data.items():
        if name in Request.__struct_fields__ or value is None:
            continue
        if any((value == same and type(value) is not bool) or value is same for same in NEUTRAL.get(name, ())):
            continue
        if name not in PASSED_ON:
            raise Refusal(400, "unsupported_parameter", f"the parameter {name} is not supported here", name)
        passed[name] = json.dumps(value)
    if request.reasoning is not None and request.reasoning.effort is not None:
        passed["reasoning_effort"] = json.dumps(request.reasoning.effort)
    if request.text is not None:
        passed |= _text_options(request.text)
    return passed


def _text_options(text: TextConfig) -> dict[str, str]:
    passed = {} if text.verbosity is None else {"verbosity": json.dumps(text.verbosity)}
    form = text.format
    if form is not None and form.type == "json_object":
        passed["response_format"] = json.dumps({"type": "json_object"})
    elif form is not None and form.type == "json_schema":
        fields = {"name": form.name, "schema": form.schema, "strict": form.strict, "description": form.description}
        schema = {name: value for name, value in fields.items() if value is not None}
        passed["response_format"] = json.dumps({"type": "json_schema", "json_schema": schema})
    return passed


def _echo(request: Request, data: Object) -> dict[str, str]:
    """What the response tells again. The instructions are kept as such, and not a second time."""
    told = {name: data[name] for name in ECHOED if data.get(name) is not None and name != "instructions"}
    told["store"] = request.store is not False
    spaces = [tool["name"] for tool in request.tools or () if tool.get("type") == "namespace"]
    if spaces:
        told[SPACES] = spaces
    return {name: json.dumps(value) for name, value in told.items()}


def resolved(wanted: Wanted, messages: tuple[Given, ...]) -> Wanted:
    """The same request with its messages."""
    return msgspec.structs.replace(wanted, messages=messages)
