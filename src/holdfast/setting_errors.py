"""Messages for malformed settings: where a setting was given, and which values are accepted. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from holdfast.model.validation import JSON, in_plain_words
from holdfast.settings import PROVIDERS, Settings, is_section

_MSGSPEC_ERROR = re.compile(r"(?P<what>.*?)( - at (`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_TOML = JSON | {"array": "a list", "object": "a table"}


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
    return in_plain_words(what, _TOML)


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
