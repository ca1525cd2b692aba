"""Which session a request names: by an id of ours, by a name of the caller's, or not at all."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec

from holdfast.api.errors import Refusal
from holdfast.model.ids import SESSION
from holdfast.store.inputs import Mode

CHANNEL = "key:"
"""Names of callers live here, together with those of `holdfast run --key` and of programs: the same name is the same session."""
HERMES = "x-hermes-session-id"
MAX_NAME = 512
MAX_KEY = 255
BUSY: dict[str, Mode | None] = {"queue": "queue", "reject": None, "steer": "steer", "interrupt": "interrupt"}


class Named(msgspec.Struct, frozen=True):
    """`ref` may be one of our ids, or an alias; if it is neither, `channel` is what it means."""

    ref: str | None = None
    channel: str | None = None
    echo: str | None = None
    """The header under which the client wants to hear the session's id as well."""


def named(headers: Mapping[str, str], further: Sequence[str], cache_key: str | None) -> Named:
    """The first of the headers that is there decides. Raises a Refusal for one that cannot be a name."""
    echo = HERMES if HERMES in headers else None
    for header in ("x-session-id", "x-session-key", HERMES, *further):
        if header in headers:
            value = text(headers[header], header, MAX_NAME)
            ref = value if header in ("x-session-id", HERMES) else None
            channel = None if ref is not None and ref.startswith(SESSION) else CHANNEL + value
            return Named(ref, channel, echo)
    if cache_key:
        return Named(None, CHANNEL + text(cache_key, "prompt_cache_key", MAX_NAME), echo)
    return Named(echo=echo)


def key(headers: Mapping[str, str]) -> str:
    """The idempotency key; empty if there is none."""
    return text(headers["idempotency-key"], "Idempotency-Key", MAX_KEY) if "idempotency-key" in headers else ""


def busy(headers: Mapping[str, str]) -> Mode | None:
    """What is to happen while another turn runs; None to be refused."""
    asked = headers.get("x-busy", "queue").strip().lower()
    if asked not in BUSY:
        known = ", ".join(BUSY)
        raise Refusal(400, "invalid_header", f"X-Busy must be one of {known}, not {asked!r}", "X-Busy")
    return cast("Literal['queue', 'steer', 'interrupt'] | None", BUSY[asked])


def text(value: str, name: str, longest: int) -> str:
    """The value of a header, which may be in UTF-8. Raises a Refusal if it is empty, too long, or cannot be shown."""
    try:
        value = value.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        pass  # it is what it says in Latin-1, or came as text in the first place
    value = value.strip()
    if not value or len(value) > longest or not value.isprintable():
        raise Refusal(400, "invalid_header", f"{name} must have 1 to {longest} visible characters", name)
    return value
