"""Answers the requests of an MCP server: questions to the person, completions by the model, directories, log messages."""

import hashlib
import json
import logging
from typing import Any

import mcp_types as types
from mcp.client import ClientRequestContext
from pydantic import FileUrl

from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.form_fields import fields
from holdfast.model.message import Content, Image, Message, Text
from holdfast.model.sanitize import one_line
from holdfast.model.tool import CallAnswer, CallQuestion, CompletionRequest
from holdfast.tools.mcp.running_call import RunningCall, RunningCalls

log = logging.getLogger(__name__)

MAX_TEXT = 100_000
"""Characters of a question or of a completion request, with its images."""
MAX_LOG_LINE = 2_000
MAX_LOG_LINES = 1_000
"""Log messages of one connection; the rest is dropped, with one line that says so."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.INFO}
"""An MCP server's warning is not one of Holdfast, which would appear on the terminal."""
REFUSED = types.ErrorData(code=types.INVALID_REQUEST, message="nobody can answer this request here")
ROLES = {"user": "user", "assistant": "assistant"}


class ServerRequests:
    """The callbacks of one connection."""

    def __init__(self, server: str) -> None:
        self.calls = RunningCalls()
        self._server = server
        self._logged = 0

    def options(self) -> dict[str, Any]:
        """Arguments for the client of the MCP library."""
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
            "logging_callback": self.write_log,
            "log_level": "info",
        }

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        call = self.calls.find()
        if call is None:
            return REFUSED
        try:
            question = to_question(params)
        except Invalid as e:
            return types.ErrorData(code=types.INVALID_PARAMS, message=str(e))
        answer = await call.ask(question)
        return REFUSED if answer is None else to_result(answer)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        call = self.calls.find()
        if call is None:
            return REFUSED
        return await _completed(call, params)

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """The working directory of the session."""
        call = self.calls.find()
        if call is None:
            return types.ListRootsResult(roots=[])
        workdir = call.context.workdir.absolute()
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(workdir.as_uri()), name=workdir.name)])

    async def write_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self._logged += 1
        if self._logged > MAX_LOG_LINES:
            return
        text = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False, default=str)
        log.log(
            LEVELS.get(params.level, logging.INFO), "MCP server %s: %s", self._server, one_line(text[:MAX_LOG_LINE])
        )
        if self._logged == MAX_LOG_LINES:
            log.info("MCP server %s logs too much; the rest is dropped", self._server)


def to_question(params: types.ElicitRequestParams) -> CallQuestion:
    """The question that a server asks. Raises Invalid if it is too long, or its form is not one."""
    if isinstance(params, types.ElicitRequestURLParams):
        form, url = "", params.url
    else:
        form, url = json.dumps(params.requested_schema), ""
        fields(form)
    if len(params.message) + len(form) + len(url) > MAX_TEXT:
        raise Invalid(f"the question is longer than {MAX_TEXT:,} characters")
    digest = hashlib.sha256(json.dumps([params.message, form, url]).encode()).hexdigest()
    return CallQuestion(key=digest[:16], message=params.message, form=form, url=url)


def to_result(answer: CallAnswer) -> types.ElicitResult:
    content = json.loads(answer.content) if answer.action == "accept" and answer.content else None
    return types.ElicitResult(action=answer.action, content=content)


async def _completed(
    call: RunningCall, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.ErrorData:
    if params.tools:
        return types.ErrorData(code=types.INVALID_PARAMS, message="completions with tools are not supported")
    request = _to_request(params)
    if _length(request) > MAX_TEXT:
        message = f"the request is longer than {MAX_TEXT:,} characters"
        return types.ErrorData(code=types.INVALID_PARAMS, message=message)
    try:
        completion = await call.complete(request)
    except HoldfastError as e:
        return types.ErrorData(code=types.INTERNAL_ERROR, message=f"the model did not answer: {e}")
    if completion is None:
        return types.ErrorData(code=-1, message="the user rejected the request")
    content = types.TextContent(type="text", text=completion.text)
    stop = "maxTokens" if completion.finish == "length" else "endTurn"
    return types.CreateMessageResult(role="assistant", content=content, model=completion.model, stop_reason=stop)


def _to_request(params: types.CreateMessageRequestParams) -> CompletionRequest:
    messages = tuple(
        Message(number, "assistant" if one.role == "assistant" else "user", _parts(one), 0)
        for number, one in enumerate(params.messages, 1)
    )
    digest = hashlib.sha256(params.model_dump_json().encode()).hexdigest()
    return CompletionRequest(
        key=digest[:16],
        messages=messages,
        system=params.system_prompt or "",
        max_tokens=params.max_tokens,
        temperature=params.temperature,
    )


def _length(request: CompletionRequest) -> int:
    """Its characters, with the system prompt and the images."""
    texts = [request.system, *(message.text for message in request.messages)]
    images = [part.url for message in request.messages for part in message.parts if isinstance(part, Image)]
    return sum(map(len, texts + images))


def _parts(message: types.SamplingMessage) -> tuple[Content, ...]:
    parts: list[Content] = []
    for block in message.content_as_list:
        match block:
            case types.TextContent():
                parts.append(Text(block.text))
            case types.ImageContent():
                parts.append(Image(f"data:{block.mime_type};base64,{block.data}", block.mime_type))
            case _:
                parts.append(Text(f"[{block.type} is not supported]"))
    return tuple(parts)
