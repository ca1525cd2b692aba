"""Messages for malformed settings: where a setting was given, and which values are accepted. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from holdfast.settings import PROVIDERS, Settings, is_section

_MSGSPEC_ERROR = re.compile(r"(?P<what>.*?)( - at (`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_WRONG_VALUE = re.compile(
    r"Expected `(?P<wanted>[^`]+)`(?P<limit> [<>]=? [\d.e+]+| of length [<>]=? \d+)?(, got `(?P<given>.*)`)?"
)
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "datetime": "a time",
}
_LIMITS = {"<=": "of at most", ">=": "of at least", ">": "above", "<": "below"}


def explain(message: str, prefix: str, variables: Mapping[str, str], file: str) -> str:
    """Rewrite an error of msgspec. `variables` has the environment variable of each setting that came from one."""
    found = _MSGSPEC_ERROR.fullmatch(message)
    assert found is not None, "the expression matches any text"
    path = prefix + (found["path"] or "").replace("gateway.platforms", "gateway").replace("[...]", "")
    where = f"environment variable {variables[path]}" if path in variables else f"{file}: {path}"
    return f"{where}: {_what_is_expected(found['what'], path)}"


def _what_is_expected(what: str, path: str) -> str:
    if "regex" in what and (path == "model" or path.startswith(("fallback_models", "context.summary_model"))):
        return f"expected provider:name, where the provider is one of {', '.join(PROVIDERS)}"
    if path == "store":
        return "expected sqlite:///path or postgresql://…"
    if "regex" in what:
        return "expected a URL that begins with http:// or https://"
    hint = _hint_at(path)
    if (get_origin(hint) is Literal or "enum" in what) and (choices := _choices(hint)):
        return f"expected one of {', '.join(choices)}"
    if path == "models":
        return f"expected tables named after the providers: {', '.join(PROVIDERS)}"
    return _in_plain_words(what)


def _in_plain_words(what: str) -> str:
    """`Expected `int` <= 9, got `str`` as `expected an integer of at most 9, got a string`."""
    found = _WRONG_VALUE.fullmatch(what)
    if found is None:
        return f"{what[:1].lower()}{what[1:]}".replace("`", "")
    kinds = [kind for kind in found["wanted"].split(" | ") if kind != "null"]
    wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
    *_, sign, limit = (found["limit"] or " ").rsplit(" ", 2)
    if "length" in (found["limit"] or ""):
        wanted = f"{wanted} with a length {_LIMITS[sign]} {limit}"
    elif sign:
        wanted = f"{wanted} {_LIMITS[sign]} {limit.removesuffix('.0')}"
    return f"expected {wanted}" + (f", got {_KINDS.get(found['given'], found['given'])}" if found["given"] else "")


def _hint_at(path: str) -> Any:
    hint: Any = Settings
    for name in path.partition("[")[0].split("."):
        hint = get_type_hints(hint).get(name) if is_section(hint) else None
    return hint


def _choices(hint: Any) -> tuple[str, ...]:
    """The values of a setting that has one of several, or a list of these."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((found for part in get_args(hint) if (found := _choices(part))), ())
