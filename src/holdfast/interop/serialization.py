"""JSON for clients. Commands and the API print the same documents: `docs/commands.md` describes them."""

import json
from typing import Any

import msgspec

from holdfast.model.times import iso

Json = dict[str, Any]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object with these fields and no others."""


def format_time(at: int | None) -> str | None:
    """ISO 8601 in UTC; None stays None."""
    return None if at is None else iso(at)


def dump(value: object, *, indent: int | None = None) -> str:
    """JSON in ASCII: any tool output, lone surrogates included, can be printed anywhere."""
    separators = (",", ":") if indent is None else None
    plain = msgspec.to_builtins(value)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)
