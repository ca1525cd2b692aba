"""Which failure of ours a vendor's answer means. One table for all: compatible servers mix the vendors' words."""

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
"""How OpenAI, Anthropic, Google, Groq, Mistral, xAI, llama.cpp, LM Studio and vLLM say that a request is too long."""

TOO_LARGE_FOR_TIER = re.compile(r"request too large for", re.IGNORECASE)
"""What OpenAI says with 429 when one request alone is over the limit of a minute: waiting does not help."""

OUT_OF_CREDIT = re.compile(
    r"insufficient_quota|insufficient (?:balance|credit|funds|quota)|credit balance is too low|billing_", re.IGNORECASE
)

SAYS_STATUS = {
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
"""The status that an error inside a stream would have had: there the HTTP status is always 200."""

_keys = re.compile(r"\b(?:sk|pk|xai|gsk)[-_][\w*.-]{6,}|\bAIza[\w*-]{6,}|(?<=[Bb]earer )\S+")


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor said."""

    who: str
    """The provider and the server, for the message."""
    model: str
    status: int | None = None
    codes: tuple[str, ...] = ()
    """What the body calls the error: its code, its type."""
    text: str = ""
    headers: Mapping[str, str] = {}


def failure(complaint: Complaint) -> ProviderFailed:
    """The failure to raise. Its message says what happened and what to do, and holds no key."""
    who, status = complaint.who, _status(complaint)
    said = " ".join((*complaint.codes, complaint.text))
    detail = _detail(complaint.text)
    if status == 413 or (TOO_LARGE_FOR_TIER if status == 429 else TOO_LONG).search(said):
        what = f"the request is too long for {complaint.model}"
        return ContextTooLong(f"{what}: compact the session or choose a model with a larger window{detail}")
    if status == 402 or (status in {400, 403, 429} and OUT_OF_CREDIT.search(said)):
        return Refused(f"{who} says the account has no credit left: top it up or choose another model")
    if status == 401:
        return AuthFailed(f"{who} did not accept the key (401): check it in the settings or the environment")
    if status == 403:
        return AuthFailed(f"{who} does not allow the key to use {complaint.model} (403): check its rights{detail}")
    if status == 404:
        return Refused(
            f"{who} does not know {complaint.model} (404): check the name of the model and the address{detail}"
        )
    if status == 429:
        wait = retry_after(complaint.headers)
        when = "later" if wait is None else f"in {wait:g} s"
        return RateLimited(f"{who} gets too many requests: try again {when}{detail}", wait)
    if status is None or status in {408, 409, 425} or status >= 500:
        return Unreachable(
            f"{who} failed ({status or 'in mid-stream'}): try again later or choose another model{detail}"
        )
    return Refused(f"{who} will not answer this request ({status}): change it or choose another model{detail}")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks to wait. A date is measured against the server's own clock."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return max(0.0, float(headers[name]) / unit)
        except (KeyError, ValueError):
            continue
    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):
        return None
    return max(0.0, wait.total_seconds())


def hide_keys(text: str, key: str) -> str:
    """The text without the key, and without what looks like one."""
    return _keys.sub("…", text.replace(key, "…") if key else text)


def redact(e: Exception, key: str) -> None:
    """Take the key out of a foreign failure, which a traceback would show as the cause of ours."""
    e.args = tuple(hide_keys(arg, key) if isinstance(arg, str) else arg for arg in e.args)


def _status(complaint: Complaint) -> int | None:
    if complaint.status is not None and complaint.status >= 400:
        return complaint.status
    numbers = (int(code) for code in complaint.codes if code.isascii() and code.isdecimal() and len(code) == 3)
    named = (SAYS_STATUS[code] for code in complaint.codes if code in SAYS_STATUS)
    return next((status for status in (*numbers, *named) if status >= 400), None)


def _detail(text: str) -> str:
    words = " ".join(text.split())
    if not words:
        return ""
    return f" ({words[:LONGEST_DETAIL]}…)" if len(words) > LONGEST_DETAIL else f" ({words})"
