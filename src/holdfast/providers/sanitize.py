"""Makes requests acceptable to every provider: UTF-8 text, JSON object arguments, valid tool names and schemas."""

import json
import math
import re
from collections.abc import Iterable

from holdfast.model.provider import ToolSpec
from holdfast.model.text import refuse_constant

MAX_NAME = 64
MAX_DEPTH = 64
"""Maximum nesting of arguments: arbitrary, far above any real call and far below every parser's limit."""

_unfit_text = re.compile("[\0\ud800-\udfff]")
_unfit_name = re.compile(r"[^a-zA-Z0-9_-]")


def clean(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which UTF-8 cannot encode, and for NUL, which some servers reject."""
    if text.isascii() and "\0" not in text:  # the usual case, twenty times as fast
        return text
    return _unfit_text.sub("\ufffd", text)


def parse_arguments(raw: str) -> dict[str, object]:
    """The arguments of a call. Text that is not a JSON object is returned unchanged under `_unparsed`."""
    try:
        value = json.loads(raw or "{}", parse_constant=refuse_constant, parse_float=_finite)
        cleaned = clean_json(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        cleaned = None
    return cleaned if isinstance(cleaned, dict) else {"_unparsed": clean(raw)}


def normalize_arguments(raw: str) -> str:
    """The arguments as the text of a JSON object: unchanged if the model wrote one."""
    parsed = parse_arguments(raw)
    written = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))
    if "_unparsed" in parsed or not raw.strip() or clean(raw) != raw or json.loads(raw) != parsed:
        return written
    return raw


def clean_json(value: object, depth: int = 0) -> object:
    """A JSON value with all its strings cleaned. Raises ValueError if it is nested too deeply."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case str():
            return clean(value)
        case list() | tuple():
            return [clean_json(item, depth + 1) for item in value]
        case dict():
            return {clean(str(key)): clean_json(item, depth + 1) for key, item in value.items()}
        case _:
            return value


def safe_name(name: str) -> str:
    """A name that every provider accepts: letters, digits, `_` and `-`, at most 64 characters."""
    return _unfit_name.sub("_", name)[:MAX_NAME] or "unnamed"


def name_tools(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """The tools by unique names that every provider accepts. A tool that is given twice is sent once."""
    named: dict[str, ToolSpec] = {}
    for tool in {tool.name: tool for tool in tools}.values():
        name, count = safe_name(tool.name), 1
        while name in named:
            count += 1
            name = f"{safe_name(tool.name)[: MAX_NAME - 4]}_{count}"
        named[name] = tool
    return named


def object_schema(parameters: dict[str, object]) -> dict[str, object]:
    """The parameters as a schema of type object; providers reject alternatives at its top level."""
    kept = {key: clean_json(value) for key, value in parameters.items() if key not in {"oneOf", "anyOf", "allOf"}}
    return {**kept, "type": "object", "properties": kept.get("properties") or {}}


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large for a float")
    return number
