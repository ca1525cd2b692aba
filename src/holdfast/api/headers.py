"""Request headers: the session (by id, by the caller's own name, or none), the idempotency key, modes and switches."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec

from holdfast.api.errors import ApiError
from holdfast.model.ids import SESSION
from holdfast.store.repos.input_queue import InputMode

CHANNEL_PREFIX = "key:"
"""Channel prefix of callers' session names. `holdfast run --key` and the library share it: the same name is the same session."""
HERMES_HEADER = "x-hermes-session-id"
MAX_NAME = 512
MAX_KEY = 255
BUSY_MODES: dict[str, InputMode | None] = {"queue": "queue", "reject": None, "steer": "steer", "interrupt": "interrupt"}

SIDE_HEADER = "x-session-side"
"""Whether the request is an auxiliary one, for clients that know; otherwise its text decides."""
TOOLS_HEADER = "x-server-tools"
SWITCH = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


class SessionNames(msgspec.Struct, frozen=True):
    """`ref` is a session id or an alias; if neither exists, `channel` names the session."""

    ref: str | None = None
    channel: str | None = None
    echo: str | None = None
    """A further response header in which the client expects the session id."""


def parse_session_names(headers: Mapping[str, str], further: Sequence[str], cache_key: str | None) -> SessionNames:
    """Read the session from the first such header. Raises ApiError for an invalid name."""
    echo = HERMES_HEADER if HERMES_HEADER in headers else None
    for header in ("x-session-id", "x-session-key", HERMES_HEADER, *further):
        if header in headers:
            value = validate_text(headers[header], header, MAX_NAME)
            if header in ("x-session-id", HERMES_HEADER):
                return name_session(value, echo)
            return SessionNames(None, CHANNEL_PREFIX + value, echo)
    if cache_key:
        return SessionNames(None, CHANNEL_PREFIX + validate_text(cache_key, "prompt_cache_key", MAX_NAME), echo)
    return SessionNames(echo=echo)


def name_session(value: str, echo: str | None = None) -> SessionNames:
    """Name a session by its id, by an alias, or by the caller's own name."""
    return SessionNames(value, None if value.startswith(SESSION) else CHANNEL_PREFIX + value, echo)


def parse_idempotency_key(headers: Mapping[str, str]) -> str:
    """Return the idempotency key; empty if there is none."""
    return validate_text(headers["idempotency-key"], "Idempotency-Key", MAX_KEY) if "idempotency-key" in headers else ""


def is_retry(headers: Mapping[str, str]) -> bool:
    """Return whether the client marks the request as a retry; OpenAI's clients number their attempts."""
    return headers.get("x-stainless-retry-count", "0").strip().strip("0").isdecimal()


def parse_busy_mode(headers: Mapping[str, str]) -> InputMode | None:
    """Return what to do while another turn runs; None rejects the request."""
    mode = headers.get("x-busy", "queue").strip().lower()
    if mode not in BUSY_MODES:
        known = ", ".join(BUSY_MODES)
        raise ApiError(400, "invalid_header", f"X-Busy must be one of {known}, not {mode!r}", "X-Busy")
    return cast("Literal['queue', 'steer', 'interrupt'] | None", BUSY_MODES[mode])


def parse_switch(headers: Mapping[str, str], name: str) -> bool | None:
    """Return whether the header turns something on or off; None if it is absent."""
    if name not in headers:
        return None
    value = headers[name].strip().lower()
    if value not in SWITCH:
        raise ApiError(400, "invalid_header", f"{name} must be one of {', '.join(SWITCH)}, not {value!r}", name)
    return SWITCH[value]


def client_id(headers: Mapping[str, str], caller: str) -> str:
    """Return an id of the program that sends the requests of a caller, so that it may revise what it has sent."""
    return hashlib.sha256(f"{caller}\n{headers.get('user-agent', '')}".encode()).hexdigest()[:12]


def validate_text(value: str, name: str, longest: int) -> str:
    """Decode the value of a header, which may be UTF-8. Raises ApiError if it is empty, too long or not printable."""
    try:
        value = value.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        pass  # it is Latin-1, or text from a body
    value = value.strip()
    if not value or len(value) > longest or not value.isprintable():
        raise ApiError(400, "invalid_header", f"{name} must have 1 to {longest} printable characters", name)
    return value
