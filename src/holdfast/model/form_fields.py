"""Forms that a running call asks a person to fill in: a flat JSON schema, its fields as text, and valid answers. Pure.

The schema is the restricted one of the Model Context Protocol: an object of strings, numbers, booleans and choices. What
else a server writes into it is ignored, so that a form is at worst too lenient; the server checks its answers anyway.
"""

import json
import re
from datetime import date, datetime

from holdfast.model.errors import Invalid
from holdfast.model.sanitize import exact, one_line

Schema = dict[str, object]
MAX_FIELDS = 100
FORMATS = {
    "email": r"[^@\s]+@[^@\s]+",
    "uri": r"[a-zA-Z][a-zA-Z0-9+.-]*:\S+",
}


def fields(form: str) -> dict[str, Schema]:
    """The fields of a form by name. Raises Invalid if the form is not a schema of an object."""
    try:
        schema = json.loads(form)
    except ValueError as e:
        raise Invalid("the form is not JSON") from e
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        raise Invalid(f"the form must be an object with at most {MAX_FIELDS} fields")
    return {str(name): found if isinstance(found, dict) else {} for name, found in properties.items()}


def describe_fields(form: str) -> list[str]:
    """One line for each field: its name, what it accepts, and its description."""
    return [_describe(name, schema, is_required=name in required(form)) for name, schema in fields(form).items()]


def fill(form: str, given: dict[str, object]) -> dict[str, object]:
    """The complete answer: what was given, and the defaults of the rest. Raises Invalid with what to correct."""
    known = fields(form)
    if unknown := [name for name in given if name not in known]:
        raise Invalid(f"the form has no field {unknown[0]!r}; its fields are {', '.join(known) or 'none'}")
    filled = {name: schema["default"] for name, schema in known.items() if "default" in schema} | given
    if missing := [name for name in required(form) if name not in filled]:
        raise Invalid(f"the form needs {', '.join(missing)}")
    for name, value in filled.items():
        _check(name, value, known[name])
    return filled


def required(form: str) -> list[str]:
    found = json.loads(form).get("required", [])
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _choices(schema: Schema) -> list[object] | None:
    """The values that a field accepts; None for any."""
    if isinstance(found := schema.get("enum"), list):
        return found
    for keyword in ("oneOf", "anyOf"):
        if isinstance(found := schema.get(keyword), list):
            return [one.get("const") for one in found if isinstance(one, dict)]
    return None


def _check(name: str, value: object, schema: Schema) -> None:
    match schema.get("type"):
        case "boolean" if not isinstance(value, bool):
            raise Invalid(f"{name} must be true or false")
        case "number" if isinstance(value, bool) or not isinstance(value, int | float):
            raise Invalid(f"{name} must be a number")
        case "integer" if isinstance(value, bool) or not isinstance(value, int):
            raise Invalid(f"{name} must be an integer")
        case "array":
            _check_list(name, value, schema)
        case "string" if not isinstance(value, str):
            raise Invalid(f"{name} must be a text")
        case _:
            pass
    choices = _choices(schema)
    if choices is not None and value not in choices:
        raise Invalid(f"{name} must be one of {', '.join(map(str, choices))}")
    _check_range(name, value, schema)


def _check_list(name: str, value: object, schema: Schema) -> None:
    if not isinstance(value, list):
        raise Invalid(f"{name} must be a list")
    items = schema.get("items")
    for one in value:
        _check(f"each of {name}", one, items if isinstance(items, dict) else {})


def _check_range(name: str, value: object, schema: Schema) -> None:
    measured = len(value) if isinstance(value, str | list) else value
    unit = " characters" if isinstance(value, str) else " entries" if isinstance(value, list) else ""
    least = schema.get({"": "minimum", " characters": "minLength", " entries": "minItems"}[unit])
    most = schema.get({"": "maximum", " characters": "maxLength", " entries": "maxItems"}[unit])
    if isinstance(measured, int | float) and not isinstance(measured, bool):
        if isinstance(least, int | float) and measured < least:
            raise Invalid(f"{name} must be at least {least:g}{unit}")
        if isinstance(most, int | float) and measured > most:
            raise Invalid(f"{name} must be at most {most:g}{unit}")
    if isinstance(value, str):
        _check_text(name, value, schema)


def _check_text(name: str, value: str, schema: Schema) -> None:
    # `pattern` is left to the server: some regular expressions take forever, and this runs inside a transaction.
    form = schema.get("format")
    if isinstance(form, str) and not _has_format(value, form):
        raise Invalid(f"{name} must be a valid {form}")


def _has_format(value: str, form: str) -> bool:
    try:
        if form == "date":
            date.fromisoformat(value)
        elif form == "date-time":
            datetime.fromisoformat(value)
    except ValueError:
        return False
    return form not in FORMATS or re.fullmatch(FORMATS[form], value) is not None


def _describe(name: str, schema: Schema, *, is_required: bool) -> str:
    choices = _choices(schema)
    kind = " | ".join(map(str, choices)) if choices is not None else str(schema.get("type", "text"))
    facts = [kind, *(["required"] if is_required else [])]
    if "default" in schema:
        facts.append(f"default {json.dumps(schema['default'], ensure_ascii=False)}")
    about = schema.get("description") or schema.get("title") or ""
    return one_line(exact(f"{name} ({', '.join(facts)})" + (f": {about}" if about else "")))
