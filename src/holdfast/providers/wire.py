"""What may travel to any vendor: text that is UTF-8, arguments that are JSON objects, names and schemas they take."""

import json
import math
import re
from collections.abc import Iterable

from holdfast.model.asking import ToolSpec

MAX_NAME = 64
MAX_DEPTH = 64
"""How deep arguments may nest: arbitrary, far over any real call and far under every parser's limit."""

_unfit_text = re.compile("[\0\ud800-\udfff]")
_unfit_name = re.compile(r"[^a-zA-Z0-9_-]")


def clean(text: str) -> str:
    """The text with U+FFFD for what UTF-8 cannot carry (lone surrogates) and what some servers refuse (NUL)."""
    return _unfit_text.sub("\ufffd", text)


def arguments(raw: str) -> dict[str, object]:
    """The arguments of a call. What is no JSON object is shown to the model as it wrote it, under `_unparsed`."""
    try:
        value = json.loads(raw or "{}", parse_constant=_refuse, parse_float=_finite)
        cleaned = scrub(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        cleaned = None
    return cleaned if isinstance(cleaned, dict) else {"_unparsed": clean(raw)}


def argument_text(raw: str) -> str:
    """The arguments as the text of a JSON object: as the model wrote them wherever that is one."""
    parsed = arguments(raw)
    written = json.dumps(parsed, ensure_ascii=False, separators=(",", ":"))
    if "_unparsed" in parsed or not raw.strip() or clean(raw) != raw or json.loads(raw) != parsed:
        return written
    return raw


def scrub(value: object, depth: int = 0) -> object:
    """A JSON value with all its texts cleaned. Raises ValueError for one that nests too deep."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case str():
            return clean(value)
        case list() | tuple():
            return [scrub(item, depth + 1) for item in value]
        case dict():
            return {clean(str(key)): scrub(item, depth + 1) for key, item in value.items()}
        case _:
            return value


def safe_name(name: str) -> str:
    """The name as every vendor accepts it: letters, digits, `_` and `-`, at most 64."""
    return _unfit_name.sub("_", name)[:MAX_NAME] or "unnamed"


def offered(tools: Iterable[ToolSpec]) -> dict[str, ToolSpec]:
    """The tools by the names they go by on the wire: no two share one, and a tool that comes twice goes once."""
    named: dict[str, ToolSpec] = {}
    for tool in {tool.name: tool for tool in tools}.values():
        name, count = safe_name(tool.name), 1
        while name in named:
            count += 1
            name = f"{safe_name(tool.name)[: MAX_NAME - 4]}_{count}"
        named[name] = tool
    return named


def schema(parameters: dict[str, object]) -> dict[str, object]:
    """The parameters as a schema of type object; vendors refuse alternatives at its top."""
    kept = {key: scrub(value) for key, value in parameters.items() if key not in {"oneOf", "anyOf", "allOf"}}
    return {**kept, "type": "object", "properties": kept.get("properties") or {}}


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large for a number")
    return number
