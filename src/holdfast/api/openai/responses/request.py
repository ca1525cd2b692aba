"""Parse requests of the Responses API. Every parameter is honoured or rejected by name; none is ignored."""

import json
from typing import Any, Literal

import msgspec

from holdfast.api.errors import ApiError
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat_request import ChatFunction, ParsedRequest
from holdfast.api.openai.responses import input_items
from holdfast.api.openai.responses.document import NAMESPACES, tool_document
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.event import ClientTool, RequestOptions

Object = dict[str, Any]
ACCEPTED_INCLUDES = ("reasoning.encrypted_content",)
"""Accepted without effect: the log keeps the model's reasoning, so clients need not send it back."""
ECHOED_FIELDS = (
    "background", "conversation", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "text",
    "tool_choice", "top_p", "truncation", "user",
)  # fmt: skip
"""Request fields that the response repeats."""
NO_EFFECT: dict[str, tuple[object, ...]] = {
    "top_p": (1,),
    "parallel_tool_calls": (True,),
    "service_tier": ("auto", "default"),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "prompt_cache_retention": ("in_memory",),
}
"""Values that have no effect, like null."""


class ForwardedParameters(msgspec.Struct, frozen=True):
    """Parameters that are passed on to some models. The response repeats them, so they have the types of the schema."""

    top_p: float | None = None
    parallel_tool_calls: bool | None = None
    service_tier: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Object | None = None


class ResponsesTool(msgspec.Struct, frozen=True):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class ResponsesTextFormat(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: Object | None = None
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: ResponsesTextFormat | None = None
    verbosity: str | None = None


class ReasoningOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesStreamOptions(msgspec.Struct, frozen=True):
    include_obfuscation: Literal[False] | None = None


class ResponsesRequest(msgspec.Struct, frozen=True):
    """Parameters honoured for every model."""

    model: str
    input: str | list[Object]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    tools: list[Object] | None = None
    tool_choice: str | Object | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    previous_response_id: str | None = None
    conversation: str | Object | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    text: TextConfig | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    client_metadata: Object | None = None


class ParsedResponsesRequest(ParsedRequest, frozen=True, kw_only=True):
    """A validated request in the engine's terms; `messages` come from `items` once references are resolved."""

    items: tuple[input_items.Item, ...]
    previous: str | None
    conversation: str | None
    background: bool


def parse(body: bytes) -> ParsedResponsesRequest:
    """Parse the body of a request. Raises ApiError naming what is wrong."""
    return parse_data(chat_request.decode(body))


def parse_data(data: Object) -> ParsedResponsesRequest:
    """Parse a request that is decoded already. Raises ApiError naming what is wrong."""
    request = chat_request.convert(
        {name: data[name] for name in data if name in ResponsesRequest.__struct_fields__}, ResponsesRequest
    )
    _refuse_contradictions(request)
    found = input_items.parse_items(request.input)
    return ParsedResponsesRequest(
        model=request.model,
        messages=(),
        items=tuple(found),
        system=input_items.system_text(found),
        terms=_terms(request, data),
        stream=bool(request.stream),
        include_usage=True,
        who=request.safety_identifier or request.user or "",
        cache_key=request.prompt_cache_key,
        digest=chat_request.request_digest(data),
        spelled={"reasoning_effort": "reasoning", "response_format": "text.format", "verbosity": "text.verbosity"},
        previous=request.previous_response_id,
        conversation=_conversation(request.conversation),
        background=bool(request.background),
    )


def _refuse_contradictions(request: ResponsesRequest) -> None:
    if request.previous_response_id is not None and request.conversation is not None:
        reason = "previous_response_id and conversation exclude each other; send one of them"
        raise ApiError(400, "invalid_value", reason, "conversation")
    if request.background and request.store is False:
        raise ApiError(400, "invalid_value", "background needs store", "store")
    chat_request.check_metadata(request.metadata)
    for name in request.include or ():
        if name not in ACCEPTED_INCLUDES:
            raise ApiError(400, "unsupported_parameter", f"include: {name} is not supported", "include")


def _conversation(given: str | Object | None) -> str | None:
    found = given.get("id", "") if isinstance(given, dict) else given
    if given is not None and (not isinstance(found, str) or not found):
        raise ApiError(400, "invalid_type", "conversation must be a string or an object with an id", "conversation")
    return found


def _terms(request: ResponsesRequest, data: Object) -> RequestOptions:
    if request.temperature is not None and not 0 <= request.temperature <= 2:
        raise ApiError(400, "invalid_value", "temperature must be from 0 to 2", "temperature")
    if request.max_output_tokens is not None and not 1 <= request.max_output_tokens < 2**31:
        raise ApiError(400, "invalid_value", "max_output_tokens must be at least 1", "max_output_tokens")
    if request.max_tool_calls is not None and not 1 <= request.max_tool_calls < 2**31:
        raise ApiError(400, "invalid_value", "max_tool_calls must be at least 1", "max_tool_calls")
    terms = RequestOptions(
        tools=_tools(request.tools or []),
        temperature=request.temperature,
        max_tokens=request.max_output_tokens,
        options=_options(request, data),
        instructions=request.instructions or None,
        max_tool_calls=request.max_tool_calls,
        echo=_echo(request, data),
    )
    chosen = chat_request.apply_tool_choice(_choice(request.tool_choice), terms)
    if len(chosen.tools) == len(terms.tools):
        return chosen
    echo = {**terms.echo, "tools": json.dumps([tool_document(tool) for tool in terms.tools])}
    return msgspec.structs.replace(chosen, echo=echo)


def _tools(given: list[Object]) -> tuple[ClientTool, ...]:
    found: list[ClientTool] = []
    for n, tool in enumerate(given):
        if tool.get("type") == "namespace" and isinstance(tool.get("tools"), list):
            space = tool.get("name")
            if not isinstance(space, str) or not space:
                raise ApiError(400, "invalid_type", f"tools[{n}].name must be a string", f"tools[{n}].name")
            found += [_client_tool(one, f"tools[{n}].tools[{m}]", space) for m, one in enumerate(tool["tools"])]
        else:
            found.append(_client_tool(tool, f"tools[{n}]"))
    if len({tool.name for tool in found}) < len(found):
        raise ApiError(400, "invalid_value", "two tools have the same name", "tools")
    if len(found) > chat_request.MAX_TOOLS:
        raise ApiError(400, "invalid_value", f"more than {chat_request.MAX_TOOLS} tools", "tools")
    return tuple(found)


def _client_tool(given: Object, where: str, space: str = "") -> ClientTool:
    if not isinstance(given, dict) or given.get("type") != "function":
        kind = given.get("type") if isinstance(given, dict) else given
        reason = f"{where}: tool type {kind!r} is not supported; client tools must be functions"
        raise ApiError(400, "unsupported_parameter", reason, f"{where}.type")
    tool = chat_request.convert(given, ResponsesTool)
    name = input_items.qualified_name(space, tool.name) if space else tool.name
    return chat_request.parse_tool(ChatFunction(name, tool.description, tool.parameters, tool.strict), where)


def _choice(given: str | Object | None) -> str | Object | None:
    """The choice in the words of the Chat Completions API."""
    if isinstance(given, dict) and given.get("type") == "function":
        return {"type": "function", "function": {"name": given.get("name")}}
    if isinstance(given, dict) and given.get("type") == "allowed_tools":
        tools = given.get("tools")
        chosen = (
            [_choice(tool) if isinstance(tool, dict) else tool for tool in tools] if isinstance(tools, list) else tools
        )
        return {"type": "allowed_tools", "allowed_tools": {"mode": given.get("mode"), "tools": chosen}}
    return given


def _options(request: ResponsesRequest, data: Object) -> dict[str, str]:
    """Collect the parameters to forward. Raises ApiError for one that is neither honoured nor forwarded."""
    names = ForwardedParameters.__struct_fields__
    chat_request.convert({name: data[name] for name in data if name in names}, ForwardedParameters)
    forwarded = chat_request.collect_options(data, ResponsesRequest, names, NO_EFFECT)
    if request.reasoning is not None and request.reasoning.effort is not None:
        forwarded["reasoning_effort"] = json.dumps(request.reasoning.effort)
    if request.text is not None:
        forwarded |= _text_options(request.text)
    return forwarded


def _text_options(text: TextConfig) -> dict[str, str]:
    forwarded = {} if text.verbosity is None else {"verbosity": json.dumps(text.verbosity)}
    form = text.format
    if form is not None and form.type == "json_object":
        forwarded["response_format"] = json.dumps({"type": "json_object"})
    elif form is not None and form.type == "json_schema":
        fields = {"name": form.name, "schema": form.schema, "strict": form.strict, "description": form.description}
        schema = {name: value for name, value in fields.items() if value is not None}
        forwarded["response_format"] = json.dumps({"type": "json_schema", "json_schema": schema})
    return forwarded


def _echo(request: ResponsesRequest, data: Object) -> dict[str, str]:
    """Collect the fields that the response repeats. The instructions are stored separately."""
    echoed = {name: data[name] for name in ECHOED_FIELDS if data.get(name) is not None and name != "instructions"}
    echoed["store"] = request.store is not False
    spaces = [tool["name"] for tool in request.tools or () if tool.get("type") == "namespace"]
    if spaces:
        echoed[NAMESPACES] = spaces
    return {name: json.dumps(value) for name, value in echoed.items()}


def with_messages(wanted: ParsedResponsesRequest, messages: tuple[ClientMessage, ...]) -> ParsedResponsesRequest:
    """Return the request with its messages."""
    return msgspec.structs.replace(wanted, messages=messages)
