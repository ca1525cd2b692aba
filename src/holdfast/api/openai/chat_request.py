"""Parse chat completion requests. Every parameter is honoured or rejected by name; none is ignored."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.api.errors import ApiError
from holdfast.api.openai.content import Content, parse_content, parse_text
from holdfast.api.openai.known_messages import (
    MIN_BYTES,
    KnownMessages,
    MessageMemo,
    RequestDigest,
    count_string_bytes,
)
from holdfast.engine.admission.history_match import ClientHistory, ClientMessage
from holdfast.model.event import ClientTool, RequestOptions
from holdfast.model.message import ToolCall
from holdfast.model.validation import explain

T = TypeVar("T")
MAX_MESSAGES = 20_000
MAX_TOOLS = 512
MAX_METADATA, MAX_METADATA_NAME, MAX_METADATA_VALUE = 16, 64, 512
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
OUT_OF_RANGE = re.compile(r"Expected `\w+( \| null)?` ([<>]=?|of length)")
ROLES = ("system", "developer", "user", "assistant", "tool")

NO_EFFECT: dict[str, tuple[object, ...]] = {
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
    "prompt_cache_retention": ("in_memory",),
}
"""Values that have no effect, like null: many clients always send them."""

FORWARDED = (
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
    "prompt_cache_retention",
    "prompt_cache_options",
)
"""Parameters forwarded unchanged to the model if its provider supports them."""
FORWARDING_PROVIDERS = ("openai",)
VENDOR_OPTIONS = {
    "stop": "stop_sequences",
    "tool_choice": "tool_choice",
    "parallel_tool_calls": "tool_choice",
    "response_format": "output_config",
}
"""The names of options in Anthropic's API. An option named `provider.name` is for that provider alone."""


class ChatFunction(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(msgspec.Struct, frozen=True):
    type: Literal["function"]
    function: ChatFunction


class ChatCalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"


class ChatToolCall(msgspec.Struct, frozen=True):
    id: str
    function: ChatCalledFunction
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None


class AllowedTools(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


class ChatStreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """Parameters honoured for every model."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    tools: list[ChatTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None


class ParsedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request in the engine's terms."""

    model: str
    messages: tuple[ClientMessage, ...]
    history: ClientHistory | None = None
    """The messages, hashed, if there are many."""
    system: str | None
    terms: RequestOptions
    stream: bool
    include_usage: bool
    who: str
    cache_key: str | None
    digest: str
    spelled: dict[str, str] = {}
    """The client's names of options where they differ."""


def parse(body: bytes, memo: MessageMemo | None = None) -> ParsedRequest:
    """Parse the body of a request. Messages that `memo` knows are not parsed again. Raises ApiError naming what is wrong."""
    split = memo.split(body) if memo is not None and len(body) >= MIN_BYTES else None
    if memo is None or split is None:
        return _parse(decode(body))[0]
    known = split.known
    if known is not None:
        try:
            data = split.parse()
            known = known if known.digest.continues(data) else None
            request, messages = _parse(data if known is not None else decode(body), known, split.messages)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ApiError):
            known = None  # parse it as a whole, for an error with the right position
    if known is None:
        request, messages = _parse(decode(body), None, split.messages)
    if messages is not None:
        memo.remember(messages, known)
    return request


def _parse(
    data: dict[str, Any], known: KnownMessages | None = None, text: bytes = b""
) -> tuple[ParsedRequest, KnownMessages | None]:
    """Parse a request whose first messages are known. With `text`, the JSON of all messages, also what to remember of it."""
    request = convert({name: data[name] for name in data if name in ChatRequest.__struct_fields__}, ChatRequest)
    options = collect_options(data, ChatRequest, FORWARDED, NO_EFFECT)
    before = known.count if known is not None else 0
    count = before + len(request.messages)
    if not count:
        raise ApiError(400, "invalid_request", "messages must not be empty", "messages")
    if count > MAX_MESSAGES:
        reason = f"{count:,} messages exceed the limit of {MAX_MESSAGES:,}; name the session and send only new ones"
        raise ApiError(400, "too_many_messages", reason, "messages")
    given = [_given(message, f"messages[{n}]") for n, message in enumerate(request.messages, before)]
    system = tuple(text for text in given if isinstance(text, str))
    messages = tuple(one for one in given if isinstance(one, ClientMessage))
    if known is not None:
        system, messages = known.system + system, known.history.given + messages
    learned: KnownMessages | None = None
    if text:
        digest = (known.digest if known is not None else RequestDigest.begin(data)).extend(data["messages"])
        history = ClientHistory.of(messages, known.history if known is not None else None)
        string_bytes = count_string_bytes(given) + (known.string_bytes if known is not None else 0)
        learned = KnownMessages(text[:-1].rstrip(), count, history, system, digest, string_bytes)
    parsed = ParsedRequest(
        model=request.model,
        messages=messages,
        history=learned.history if learned is not None else None,
        system="\n\n".join(system) if system else None,
        terms=_terms(request, options),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        who=request.safety_identifier or request.user or "",
        cache_key=request.prompt_cache_key,
        digest=learned.digest.finish(data) if learned is not None else request_digest(data),
    )
    return parsed, learned


def decode(body: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ApiError(400, "invalid_json", f"the body is not JSON: {e}") from e
    if not isinstance(data, dict):
        raise ApiError(400, "invalid_json", "the body must be a JSON object")
    return data


def convert(data: object, kind: type[T], *, strict: bool = True) -> T:
    """Convert data to the type; if not `strict`, numbers may be text. Raises ApiError naming the field."""
    try:
        return msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as e:
        what, _, where = str(e).partition(" - at `$")
        path = where.rstrip("`").lstrip(".") or None
        name = re.match(r"Object missing required field `(\w+)`", what)
        if name is not None:
            path = f"{path}.{name[1]}" if path else name[1]
        reason = explain(e) if path else f"body: {explain(e)}"
        if OUT_OF_RANGE.match(what):
            raise ApiError(400, "invalid_value", reason, path) from e
        raise ApiError(400, "invalid_type", reason, path) from e


def collect_options(
    data: dict[str, Any],
    request: type[msgspec.Struct],
    forwarded: Collection[str],
    no_effect: Mapping[str, tuple[object, ...]],
) -> dict[str, str]:
    """Collect the parameters to forward. Raises ApiError for one that is neither honoured nor forwarded."""
    options: dict[str, str] = {}
    for name, value in data.items():
        if name in request.__struct_fields__ or value is None:
            continue
        if any((value == same and type(value) is not bool) or value is same for same in no_effect.get(name, ())):
            continue
        if name not in forwarded:
            raise ApiError(400, "unsupported_parameter", f"parameter {name} is not supported", name)
        options[name] = json.dumps(value)
    return options


def _given(message: ChatMessage, where: str) -> ClientMessage | str:
    """Parse a message; for a system message, its text."""
    if message.role in ("system", "developer"):
        return parse_text(message.content, where)
    if message.role == "assistant":
        return _answer(message, where)
    if message.tool_calls:
        raise ApiError(
            400, "invalid_request", f"{where}: only assistant messages may have tool_calls", f"{where}.tool_calls"
        )
    if message.role == "tool":
        if not message.tool_call_id:
            reason = f"{where}: a tool message needs a tool_call_id"
            raise ApiError(400, "invalid_request", reason, f"{where}.tool_call_id")
        parts = parse_content(message.content, f"{where}.content")
        return ClientMessage(role="tool", parts=parts, call_id=message.tool_call_id, name=message.name or "")
    if message.content is None:
        raise ApiError(400, "invalid_request", f"{where}: content is missing", f"{where}.content")
    if message.name and not NAME.fullmatch(message.name):
        reason = f"{where}: a name has 1 to 64 letters, digits, _ and -"
        raise ApiError(400, "invalid_value", reason, f"{where}.name")
    return ClientMessage(role="user", parts=parse_content(message.content, f"{where}.content"), name=message.name or "")


def _answer(message: ChatMessage, where: str) -> ClientMessage:
    calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
    if len({call.id for call in calls}) < len(calls) or not all(call.id for call in calls):
        raise ApiError(400, "invalid_request", f"{where}: each tool call needs a unique id", f"{where}.tool_calls")
    content = message.content or (None if calls else message.content)  # some send an empty list with calls
    parts = parse_content(content, f"{where}.content") if content is not None else ()
    return ClientMessage(role="assistant", parts=parts, calls=calls)


def _terms(request: ChatRequest, options: dict[str, str]) -> RequestOptions:
    if request.temperature is not None and not 0 <= request.temperature <= 2:
        raise ApiError(400, "invalid_value", "temperature must be from 0 to 2", "temperature")
    limit = request.max_completion_tokens or request.max_tokens
    for name in ("max_tokens", "max_completion_tokens"):
        value = getattr(request, name)
        if value is not None and not 1 <= value < 2**31:
            raise ApiError(400, "invalid_value", f"{name} must be at least 1", name)
    tools = tuple(parse_tool(tool.function, f"tools[{n}]") for n, tool in enumerate(request.tools or ()))
    if len({tool.name for tool in tools}) < len(tools):
        raise ApiError(400, "invalid_value", "two tools have the same name", "tools")
    if len(tools) > MAX_TOOLS:
        raise ApiError(400, "invalid_value", f"more than {MAX_TOOLS} tools", "tools")
    terms = RequestOptions(
        tools=tools,
        temperature=request.temperature,
        max_tokens=limit,
        options=options,
        metadata=check_metadata(request.metadata),
    )
    return apply_tool_choice(request.tool_choice, terms)


def check_metadata(given: dict[str, str] | None) -> dict[str, str]:
    """Return the metadata of a request. Raises ApiError if it is too large."""
    found = given or {}
    if len(found) > MAX_METADATA:
        raise ApiError(400, "invalid_value", f"metadata may have at most {MAX_METADATA} pairs", "metadata")
    for name, value in found.items():
        if len(name) > MAX_METADATA_NAME or len(value) > MAX_METADATA_VALUE:
            reason = f"metadata: a name may have {MAX_METADATA_NAME} characters, and a value {MAX_METADATA_VALUE}"
            raise ApiError(400, "invalid_value", reason, "metadata")
        if "\0" in name or "\0" in value:
            raise ApiError(400, "invalid_value", "metadata contains a NUL character", "metadata")
    return found


def parse_tool(function: ChatFunction, where: str) -> ClientTool:
    """Parse a client tool. Raises ApiError if it is invalid."""
    if not NAME.fullmatch(function.name):
        reason = f"{where}: a tool name has 1 to 64 letters, digits, _ and -"
        raise ApiError(400, "invalid_value", reason, f"{where}.function.name")
    schema = function.parameters or {}
    if schema and schema.get("type") != "object":
        reason = f"{where}: parameters must be a JSON schema of type object"
        raise ApiError(400, "invalid_value", reason, f"{where}.function.parameters")
    return ClientTool(
        name=function.name,
        description=function.description or "",
        parameters=json.dumps(schema),
        strict=bool(function.strict),
    )


def apply_tool_choice(choice: str | dict[str, Any] | None, terms: RequestOptions) -> RequestOptions:
    """Apply tool_choice to the options. A tool that must be called can only be one of the client's."""
    if choice in (None, "auto"):
        return terms
    if choice == "none":
        return msgspec.structs.replace(terms, use_tools=False)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return _restrict_tools(choice.get("allowed_tools"), terms)
    names = [tool.name for tool in terms.tools]
    if (choice == "required" and names) or _name_in(choice) in names:
        options = {**terms.options, "tool_choice": json.dumps(choice)}
        return msgspec.structs.replace(terms, options=options, our_tools=False)
    reason = "tool_choice must be auto, none, required (with tools), allowed_tools or one of the request's tools"
    raise ApiError(400, "invalid_value", reason, "tool_choice")


def _restrict_tools(given: object, terms: RequestOptions) -> RequestOptions:
    """Offer only some of the client's tools. Raises ApiError if there are no such tools."""
    allowed = convert(given, AllowedTools)
    names = {_name_in(one) for one in allowed.tools}
    tools = tuple(tool for tool in terms.tools if tool.name in names)
    if not tools or len(tools) < len(names):
        raise ApiError(400, "invalid_value", "allowed_tools must name tools of the request", "tool_choice")
    options = {**terms.options, "tool_choice": '"required"'} if allowed.mode == "required" else terms.options
    return msgspec.structs.replace(terms, tools=tools, options=options, our_tools=False)


def _name_in(choice: object) -> str | None:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def check_provider_options(provider: str, terms: RequestOptions, spelled: Mapping[str, str] | None = None) -> None:
    """Raise ApiError for an option that the model's provider does not support."""
    unsupported = [
        name
        for name in terms.options
        if "." not in name
        and provider not in FORWARDING_PROVIDERS
        and f"{provider}.{VENDOR_OPTIONS.get(name)}" not in terms.options
    ]
    if unsupported:
        name = (spelled or {}).get(unsupported[0], unsupported[0])
        reason = f"parameter {name} is not supported by provider {provider}"
        raise ApiError(400, "unsupported_parameter", reason, name)


def request_digest(data: dict[str, Any]) -> str:
    """Hash the request without its streaming options."""
    asked = {name: value for name, value in data.items() if name not in ("stream", "stream_options")}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
