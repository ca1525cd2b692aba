"""Parse requests of Anthropic's Messages API. Every parameter is honoured or rejected by name; none is ignored."""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from holdfast.api.anthropic.blocks import parse_message, referenced_tools, system_text
from holdfast.api.anthropic.request_models import CountTokensRequest, MessagesRequest, MessageTool, OutputConfig
from holdfast.api.errors import ApiError
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat_request import MAX_MESSAGES, MAX_TOOLS, ParsedRequest
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.event import ClientTool, RequestOptions

T = TypeVar("T", bound=CountTokensRequest)
VERSION = re.compile(r"20\d\d-[01]\d-[0-3]\d")
"""Newer SDKs send newer dates; the requests and responses that they share with the first version have not changed."""
VERSION_HEADER = "anthropic-version"
BILLING_PREFIX = "x-anthropic-billing-header:"
"""Begins a system block for Anthropic's accounting. It differs between requests and is not meant for the model."""
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MIN_THINKING = 1024
FORWARDED = ("top_p",)
NO_EFFECT: dict[str, tuple[object, ...]] = {
    "top_p": (1,),
    "top_k": (),
    "speed": ("standard",),
    "mcp_servers": ([],),
    "container": (),
    "diagnostics": (),
    "inference_geo": (),
    "compaction": (),
    "fallbacks": ([],),
    "fallback_credit_token": (),
    "thread": (),
}
"""Values that have no effect, like null."""


class ParsedMessagesRequest(ParsedRequest, frozen=True, kw_only=True):
    """A validated request in the engine's terms."""

    request: MessagesRequest
    shows_thinking: bool


def check_version(headers: Mapping[str, str]) -> None:
    """Raise ApiError for a request without a known version of the API."""
    version = headers.get(VERSION_HEADER, "").strip()
    if not version:
        raise ApiError(400, "invalid_header", f"{VERSION_HEADER}: header is required", VERSION_HEADER)
    if not VERSION.fullmatch(version):
        reason = f"{VERSION_HEADER}: {version!r} is not a valid version, such as 2023-06-01"
        raise ApiError(400, "invalid_header", reason, VERSION_HEADER)


def parse(body: bytes) -> ParsedMessagesRequest:
    """Parse the body of `POST /v1/messages`. Raises ApiError naming what is wrong."""
    data = chat_request.decode(body)
    request = _convert(data, MessagesRequest)
    _check_thinking(request)
    options = chat_request.collect_options(data, MessagesRequest, FORWARDED, NO_EFFECT)
    messages, system = parse_messages(request)
    terms = RequestOptions(
        tools=parse_tools(request),
        use_tools=request.tool_choice is None or request.tool_choice.type != "none",
        our_tools=request.tool_choice is None or request.tool_choice.type not in ("any", "tool"),
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        options=options | _provider_options(request),
    )
    return ParsedMessagesRequest(
        model=request.model,
        messages=messages,
        system=system,
        terms=terms,
        stream=bool(request.stream),
        include_usage=True,
        who=(request.metadata.user_id or "") if request.metadata is not None else "",
        cache_key=None,
        digest=chat_request.request_digest(data),
        spelled={
            "stop": "stop_sequences",
            "response_format": "output_config.format",
            "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        },
        request=request,
        shows_thinking=request.thinking is not None and request.thinking.is_shown,
    )


def parse_count(body: bytes) -> CountTokensRequest:
    """Parse the body of `POST /v1/messages/count_tokens`. Parameters of a whole request are accepted as well."""
    data = chat_request.decode(body)
    if "max_tokens" in data:
        return _convert(data, MessagesRequest)
    chat_request.collect_options(data, MessagesRequest, FORWARDED, NO_EFFECT)
    return _convert(data, CountTokensRequest)


def _convert(data: dict[str, Any], kind: type[T]) -> T:
    request = chat_request.convert({name: data[name] for name in data if name in kind.__struct_fields__}, kind)
    if not request.messages:
        raise ApiError(400, "invalid_request", "messages: at least one message is required", "messages")
    if len(request.messages) > MAX_MESSAGES:
        reason = f"{len(request.messages):,} messages exceed the limit of {MAX_MESSAGES:,}; name the session and send only new ones"
        raise ApiError(400, "too_many_messages", reason, "messages")
    return request


def parse_messages(request: CountTokensRequest) -> tuple[tuple[ClientMessage, ...], str | None]:
    """The messages without system text, and all system text, wherever it is."""
    texts: list[str] = []
    if isinstance(request.system, str):
        texts.append(request.system)
    elif request.system is not None:
        texts += [system_text([block], f"system[{n}]") for n, block in enumerate(request.system)]
    messages: list[ClientMessage] = []
    for n, message in enumerate(request.messages):
        parsed = parse_message(message, f"messages[{n}]")
        if isinstance(parsed, str):
            texts.append(parsed)
        else:
            messages += parsed
    meant = [text for text in texts if text and not text.startswith(BILLING_PREFIX)]
    return tuple(messages), "\n\n".join(meant) if meant else None


def parse_tools(request: CountTokensRequest) -> tuple[ClientTool, ...]:
    """The client's tools that the model may see. Raises ApiError for one that runs at Anthropic."""
    given = request.tools or []
    if len(given) > MAX_TOOLS:
        raise ApiError(400, "invalid_value", f"tools: more than {MAX_TOOLS} tools", "tools")
    loaded = referenced_tools(request.messages) if any(tool.defer_loading for tool in given) else set()
    tools = [_tool(tool, f"tools[{n}]") for n, tool in enumerate(given)]
    if len({tool.name for tool in tools}) < len(tools):
        raise ApiError(400, "invalid_value", "tools: tool names must be unique", "tools")
    choice = request.tool_choice
    if choice is not None and choice.type == "tool" and choice.name not in {tool.name for tool in tools}:
        raise ApiError(400, "invalid_value", f"tool_choice.name: no tool {choice.name!r} in tools", "tool_choice")
    if choice is not None and choice.type == "any" and not tools:
        raise ApiError(400, "invalid_value", "tool_choice: any needs tools", "tool_choice")
    return tuple(tool for tool, one in zip(tools, given, strict=True) if not one.defer_loading or one.name in loaded)


def _tool(tool: MessageTool, where: str) -> ClientTool:
    if tool.type not in (None, "custom"):
        reason = f"{where}: tools of type {tool.type} are not supported; describe the tool with an input_schema"
        raise ApiError(400, "unsupported_parameter", reason, f"{where}.type")
    if not TOOL_NAME.fullmatch(tool.name):
        reason = f"{where}.name: a tool name has 1 to 128 letters, digits, _ and -"
        raise ApiError(400, "invalid_value", reason, f"{where}.name")
    if tool.input_schema is None or tool.input_schema.get("type") != "object":
        reason = f"{where}.input_schema: must be a JSON schema of type object"
        raise ApiError(400, "invalid_value", reason, f"{where}.input_schema")
    return ClientTool(
        name=tool.name,
        description=tool.description or "",
        parameters=json.dumps(tool.input_schema),
        strict=bool(tool.strict),
    )


def _check_thinking(request: MessagesRequest) -> None:
    thinking = request.thinking
    if thinking is None or thinking.type != "enabled":
        return
    if thinking.budget_tokens is None or not MIN_THINKING <= thinking.budget_tokens < request.max_tokens:
        reason = f"thinking.budget_tokens: must be at least {MIN_THINKING} and less than max_tokens"
        raise ApiError(400, "invalid_value", reason, "thinking.budget_tokens")


def _provider_options(request: MessagesRequest) -> dict[str, str]:
    """Parameters to pass on: under OpenAI's names, and under `anthropic.` and Anthropic's. Each provider takes its own."""
    options: dict[str, object] = {}
    if request.stop_sequences:
        options |= {"stop": request.stop_sequences, "anthropic.stop_sequences": request.stop_sequences}
    choice = request.tool_choice
    if choice is not None and (choice.type in ("any", "tool") or choice.disable_parallel_tool_use):
        options["anthropic.tool_choice"] = _without_nulls(choice)
        if choice.disable_parallel_tool_use:
            options["parallel_tool_calls"] = False
        if choice.type == "any":
            options["tool_choice"] = "required"
        elif choice.type == "tool":
            options["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    if request.thinking is not None:
        options["anthropic.thinking"] = _without_nulls(request.thinking)
    if request.service_tier == "standard_only":
        options["anthropic.service_tier"] = request.service_tier
    output = request.output_config
    if output is not None and output != OutputConfig():
        options["anthropic.output_config"] = _without_nulls(output)
        if output.format is not None:
            wanted = {"name": "reply", "schema": output.format.schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return {name: json.dumps(value) for name, value in options.items()}


def _without_nulls(value: msgspec.Struct) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(value)
    return {name: field for name, field in found.items() if field is not None}
