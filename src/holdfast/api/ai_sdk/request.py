"""Parse chat requests of the Vercel AI SDK: UI messages become a client's messages, tool results and answers."""

import json
from typing import Any, Literal

import msgspec

from holdfast.api.errors import ApiError
from holdfast.api.models import SESSION_MODEL
from holdfast.api.native.request_models import RequestModel
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat_request import ChatFunction, ParsedRequest
from holdfast.api.openai.content import parse_part
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.answer import Answer
from holdfast.model.client_transcript import BETWEEN
from holdfast.model.event import RequestOptions
from holdfast.model.message import Content, Text, ToolCall

METADATA = "holdfast"
"""Where UI messages and their parts have our metadata."""
DYNAMIC, STATIC = "dynamic-tool", "tool-"
RESULTS = ("output-available", "output-error")
INCOMPLETE = ("discarded", "partial")
"""Marks of a text part that the log has no complete reply for."""


class UIMessage(msgspec.Struct, frozen=True):
    """A message as the AI SDK keeps it."""

    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]]
    id: str = ""
    metadata: Any = None

    @property
    def is_complete(self) -> bool:
        """Whether the client received this message up to the end of its turn."""
        ours = self.metadata.get(METADATA) if isinstance(self.metadata, dict) else None
        return isinstance(ours, dict) and "outcome" in ours


class ClientToolItem(msgspec.Struct, frozen=True):
    """A tool that the client runs."""

    name: str
    description: str | None = None
    schema: dict[str, Any] | None = msgspec.field(default=None, name="inputSchema")


class ChatBody(RequestModel, frozen=True):
    """What `DefaultChatTransport` sends, or only the newest `message`; and options for this turn."""

    id: str
    messages: list[UIMessage] | None = None
    message: UIMessage | None = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = msgspec.field(default=None, name="messageId")
    model: str = SESSION_MODEL
    system: str | None = None
    tools: list[ClientToolItem] | None = None


class ApprovalGiven(msgspec.Struct, frozen=True):
    """The user's answer to the question with this id."""

    question_id: str
    answer: Answer


class ParsedChat(msgspec.Struct, frozen=True):
    """A chat request in the engine's terms."""

    asked: ParsedRequest
    approvals: tuple[ApprovalGiven, ...] = ()
    """Answers to questions of the turn that waits; there is then no other input."""
    continued: str = ""
    """The id of the assistant's message that the reply continues."""


def list_messages(body: ChatBody) -> list[UIMessage]:
    """The messages of the request. Raises ApiError if there are none."""
    given = body.messages if body.messages is not None else [] if body.message is None else [body.message]
    if not given:
        raise ApiError(400, "invalid_request", "messages must not be empty", "messages")
    if body.messages is None and body.trigger == "regenerate-message":
        reason = "regenerate-message needs all messages up to the one to answer again"
        raise ApiError(400, "invalid_request", reason, "messages")
    if len(given) > chat_request.MAX_MESSAGES:
        reason = f"{len(given):,} messages exceed the limit of {chat_request.MAX_MESSAGES:,}; send only the newest"
        raise ApiError(400, "too_many_messages", reason, "messages")
    return given


def parse_chat(body: ChatBody, given: list[UIMessage]) -> ParsedChat:
    """Parse the request with these messages. Raises ApiError naming what is wrong."""
    last = given[-1]
    system = [body.system] if body.system is not None else []
    messages: list[ClientMessage] = []
    for number, message in enumerate(given):
        where = f"messages[{number}]"
        if message.role == "system":
            system.append("".join(text_parts(message)))
        elif message.role == "user":
            messages.append(_user_message(message, where))
        else:
            messages += _assistant_messages(message, where)
    asked = ParsedRequest(
        model=body.model,
        messages=tuple(messages),
        system="\n\n".join(system) if system else None,
        terms=RequestOptions(tools=tuple(_tool(tool, f"tools[{n}]") for n, tool in enumerate(body.tools or ()))),
        stream=True,
        include_usage=False,
        who="",
        cache_key=None,
        digest=chat_request.request_digest(msgspec.to_builtins(body)),
    )
    is_reply = last.role == "assistant"
    return ParsedChat(asked, _approvals(last) if is_reply else (), last.id if is_reply else "")


def text_parts(message: UIMessage) -> list[str]:
    """The texts of complete replies in a message."""
    return [
        str(part.get("text", "")) for part in message.parts if part.get("type") == "text" and not _is_incomplete(part)
    ]


def _is_incomplete(part: dict[str, Any]) -> bool:
    about = part.get("providerMetadata")
    marks = about.get(METADATA) if isinstance(about, dict) else None
    return isinstance(marks, dict) and any(marks.get(mark) for mark in INCOMPLETE)


def _user_message(message: UIMessage, where: str) -> ClientMessage:
    parts: list[Content] = []
    for number, part in enumerate(message.parts):
        kind, place = str(part.get("type")), f"{where}.parts[{number}]"
        if kind == "text":
            parts.append(parse_part({"type": "text", "text": part.get("text")}, place))
        elif kind == "file":
            parts.append(_file(part, place))
        elif not kind.startswith("data-"):  # data parts are for the page alone
            reason = f"{place}: a user's part must be text, file or data-*, not {kind!r}"
            raise ApiError(400, "unsupported_content", reason, f"{place}.type")
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise ApiError(400, "invalid_request", f"{where}: the message is empty", f"{where}.parts")
    return ClientMessage(role="user", parts=tuple(parts))


def _file(part: dict[str, Any], where: str) -> Content:
    if str(part.get("mediaType", "")).startswith("image"):
        return parse_part({"type": "image_url", "image_url": {"url": part.get("url")}}, where)
    file = {"file_data": part.get("url"), "filename": part.get("filename")}
    return parse_part({"type": "file", "file": file}, where)


def _assistant_messages(message: UIMessage, where: str) -> list[ClientMessage]:
    """The replies in a message, each with its calls of the client's tools and their results. The server's are in the log."""
    found: list[ClientMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[ClientMessage] = []

    def flush() -> None:
        text = BETWEEN.join(text for text in texts if text.strip())
        if text or calls:
            parts = (Text(text),) if text else ()
            found.append(ClientMessage(role="assistant", parts=parts, calls=tuple(calls)))
        found.extend(results)
        for kept in (texts, calls, results):
            kept.clear()

    for number, part in enumerate(message.parts):
        kind = str(part.get("type"))
        if kind == "step-start" and calls:
            flush()
        elif kind == "text" and not _is_incomplete(part):
            texts.append(str(part.get("text", "")))
        elif (kind == DYNAMIC or kind.startswith(STATIC)) and not part.get("providerExecuted"):
            call, result = _client_call(part, f"{where}.parts[{number}]")
            calls.append(call)
            results += result
    flush()
    return found


def _client_call(part: dict[str, Any], where: str) -> tuple[ToolCall, list[ClientMessage]]:
    """A call of a client's tool, and its result if there is one."""
    kind, call_id = str(part["type"]), part.get("toolCallId")
    name = part.get("toolName") if kind == DYNAMIC else kind.removeprefix(STATIC)
    if not isinstance(call_id, str) or not call_id or not isinstance(name, str) or not name:
        raise ApiError(400, "invalid_request", f"{where}: a tool part needs a toolCallId and a name", where)
    call = ToolCall(call_id, name, json.dumps(part.get("input", {})))
    if part.get("state") not in RESULTS or part.get("preliminary"):
        return call, []
    failed = part["state"] == "output-error"
    output = part.get("errorText") if failed else part.get("output")
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    result = ClientMessage(role="tool", parts=(Text(text),), call_id=call_id, name=name, failed=failed)
    return call, [result]


def _approvals(message: UIMessage) -> tuple[ApprovalGiven, ...]:
    """The answers of the user that the message has."""
    found: list[ApprovalGiven] = []
    for part in message.parts:
        approval = part.get("approval")
        if part.get("state") != "approval-responded" or not isinstance(approval, dict):
            continue
        question_id, allowed, reason = approval.get("id"), approval.get("approved"), approval.get("reason")
        if isinstance(question_id, str) and isinstance(allowed, bool):
            answer = Answer(allowed=allowed, reason=reason if isinstance(reason, str) else "")
            found.append(ApprovalGiven(question_id, answer))
    return tuple(found)


def _tool(tool: ClientToolItem, where: str) -> Any:
    function = ChatFunction(name=tool.name, description=tool.description, parameters=tool.schema)
    return chat_request.parse_tool(function, where)
