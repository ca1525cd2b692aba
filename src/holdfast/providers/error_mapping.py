"""Maps the error responses of providers to our errors. One table for all: compatible servers mix the vendors' wordings."""

import json
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from holdfast.model.errors import (
    AuthFailed,
    ContextTooLong,
    ProviderFailed,
    RateLimited,
    Refused,
    Unreachable,
)

LONGEST_DETAIL = 300

TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|model_context_window_exceeded|tokens_limit_reached"
    r"|prompt is too long|input is too long|input length and `?max_tokens"
    r"|maximum context length|maximum prompt length|maximum model length|max_model_len"
    r"|(?:exceed\w*|longer than|larger than|greater than|over) (?:the |this |its )?(?:model'?s? |available |maximum )*"
    r"context (?:size|length|window|limit)"
    r"|context (?:size|length|window|limit) (?:has been |was |is )?exceeded|context overflow"
    r"|input token count.{0,40}exceeds|reduce the length of the (?:messages|input|prompt)|too many (?:input )?tokens",
    re.IGNORECASE,
)
"""How OpenAI, Anthropic, Google, Groq, Mistral, xAI, llama.cpp, LM Studio and vLLM report a request that is too long."""

TOO_LARGE_FOR_TIER = re.compile(r"request too large for", re.IGNORECASE)
"""OpenAI's 429 for a single request above the limit per minute: waiting does not help."""

OUT_OF_CREDIT = re.compile(
    r"insufficient_quota|insufficient (?:balance|credit|funds|quota)|credit balance is too low|billing_", re.IGNORECASE
)

NOT_THE_CONTENT = re.compile(
    r"unsupported_(?:parameter|value)|unknown_parameter|invalid_function_parameters|model_not_found|invalid_model"
    r"|unrecognized request argument|(?:unknown|unsupported|unexpected|extra) (?:parameter|field|inputs?)"
    r"|(?:unknown|invalid|unsupported) model|model .{0,80}(?:does not exist|not found|not supported)|not a valid model"
    r"|schema for (?:function|response_format)|\btools[.\[]\d|^(?:tools|tool_choice|temperature|top_p|max_tokens|system|model)\s*[.:\[]"
    r"|did not have response messages|must be a response to a preceding|without .{0,20}tool_result|unexpected .{0,3}tool_use_id",
    re.IGNORECASE,
)
"""How providers reject a request because of its settings, tools, model or message order."""

STATUS_BY_CODE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status for an error inside a stream, where the HTTP status is always 200."""

_keys = re.compile(r"\b(?:sk|pk|xai|gsk)[-_][\w*.-]{6,}|\bAIza[\w*-]{6,}|(?<=[Bb]earer )\S+")


class ProviderErrorResponse(Exception):
    """A provider answered with an error status, with an error in the stream, or with something that is no stream."""

    def __init__(self, status: int | None, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__("an error response" if status is None else f"HTTP status {status}")
        self.status = status
        self.headers = headers
        self.body = body

    def document(self) -> Mapping[str, object]:
        """The body as a JSON object; empty if it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def text(self) -> str:
        return self.body.decode("utf-8", "replace").strip()


class VendorError(msgspec.Struct, frozen=True, kw_only=True):
    """An error response of a provider."""

    who: str
    """The provider and the host, for the message."""
    model: str
    status: int | None = None
    codes: tuple[str, ...] = ()
    """The error code and the error type in the body."""
    text: str = ""
    param: str = ""
    """The request field that the provider names."""
    headers: Mapping[str, str] = {}


def map_error(error: VendorError) -> ProviderFailed:
    """The error to raise. Its message says what happened and what to do, and contains no key."""
    who, status = error.who, _status(error)
    text = " ".join((*error.codes, error.text))
    detail = _detail(error.text)
    if status == 413 or (TOO_LARGE_FOR_TIER if status == 429 else TOO_LONG).search(text):
        what = f"the request is too long for {error.model}"
        return ContextTooLong(f"{what}: compact the session or choose a model with a larger window{detail}")
    if status == 402 or (status in {400, 403, 429} and OUT_OF_CREDIT.search(text)):
        return Refused(f"{who} reports that the account has no credit: add credit or choose another model")
    if status == 401:
        return AuthFailed(f"{who} rejected the API key (401): check it in the settings or the environment")
    if status == 403:
        return AuthFailed(
            f"{who} does not allow this API key to use {error.model} (403): check its permissions{detail}"
        )
    if status == 404:
        return Refused(f"{who} has no model {error.model} (404): check the model name and the URL{detail}")
    wait = retry_after(error.headers)
    when = "later" if wait is None else f"in {wait:g} s"
    if status == 429:
        return RateLimited(f"{who} is rate-limiting us (429): try again {when}{detail}", wait)
    if status is None or status in {408, 409, 425} or status >= 500:
        return Unreachable(
            f"{who} failed ({status or 'during the stream'}): try again {when} or choose another model{detail}", wait
        )
    message = f"{who} rejected the request ({status}): change it or choose another model{detail}"
    return Refused(message, blames_input=_blames_input(error, status))


def _blames_input(error: VendorError, status: int) -> bool:
    """Whether the content of the messages was rejected. If unclear, it counts as content."""
    if status not in {400, 415, 422}:
        return False
    if error.param and not error.param.startswith(("messages", "input")):
        return False
    text = (*error.codes, error.text)
    return not any(NOT_THE_CONTENT.search(one) for one in text)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The server's retry-after in seconds. A date is compared with the server's own clock."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return max(0.0, wait.total_seconds())


def hide_keys(text: str, key: str) -> str:
    """The text without the key, and without anything that looks like a key."""
    return _keys.sub("…", text.replace(key, "…") if key else text)


def _status(error: VendorError) -> int | None:
    if error.status is not None and error.status >= 400:
        return error.status
    numbers = (int(code) for code in error.codes if code.isascii() and code.isdecimal() and len(code) == 3)
    named = (STATUS_BY_CODE[code] for code in error.codes if code in STATUS_BY_CODE)
    return next((status for status in (*numbers, *named) if status >= 400), None)


def _detail(text: str) -> str:
    line = " ".join(text.split())
    if not line:
        return ""
    return f" ({line[:LONGEST_DETAIL]}…)" if len(line) > LONGEST_DETAIL else f" ({line})"
