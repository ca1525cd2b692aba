"""Validates arguments against the part of JSON Schema that tools use, with messages for the model.

Unknown keywords (`$ref`, `anyOf`, formats, …) are ignored: the tool or its server checks them.
"""

from collections.abc import Callable, Collection, Iterable

from holdfast.model.errors import Invalid


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integral(value: object) -> bool:
    return value.is_integer() if isinstance(value, float) else isinstance(value, int)


TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": ("an integer", lambda value: _is_number(value) and _is_integral(value)),
    "number": ("a number", _is_number),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}


def validate(value: object, schema: object, subject: str) -> object:
    """The value, converted to the types of the schema. Raises Invalid with a sentence that says what to correct."""
    if not isinstance(schema, dict):
        return value
    types = _types(schema)
    if types and not any(TYPES[name][1](value) for name in types):
        wanted = " or ".join(TYPES[name][0] for name in types)
        raise Invalid(f"{subject} must be {wanted}, not {_kind(value)}")
    if isinstance(choices := schema.get("enum"), list) and value not in choices:
        raise Invalid(f"{subject} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    if isinstance(value, dict):
        return _validate_object(value, schema, subject)
    if isinstance(value, list):
        return [validate(item, schema.get("items"), f"{subject}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(value, schema, subject)
        return int(value) if types == ["integer"] else value
    return value


def _types(schema: dict[str, object]) -> list[str]:
    given = schema.get("type")
    names = given if isinstance(given, list) else [given]
    return [name for name in names if name in TYPES]


def _kind(value: object) -> str:
    return next((noun for noun, fits in TYPES.values() if fits(value)), type(value).__name__)


def _validate_object(value: dict[str, object], schema: dict[str, object], subject: str) -> dict[str, object]:
    given = schema.get("properties")
    properties = given if isinstance(given, dict) else {}
    listed = schema.get("required")
    required: Collection[object] = listed if isinstance(listed, list) else ()
    if missing := [name for name in required if name not in value]:
        raise Invalid(f"{subject} is missing {_names(missing)}")
    unknown = [name for name in value if name not in properties]
    if unknown and schema.get("additionalProperties") is False:
        raise Invalid(f"{subject} has no parameter {_names(unknown)}")
    return {
        name: validate(item, properties.get(name), f"`{name}`")
        for name, item in value.items()
        if item is not None or name in required or _accepts_null(properties.get(name))
    }


def _accepts_null(schema: object) -> bool:
    """Whether null is a value. Models write null for "not given": it is dropped if the schema names types without null."""
    return not isinstance(schema, dict) or not _types(schema) or "null" in _types(schema)


def _check_range(value: float, schema: dict[str, object], subject: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and value < low:
        raise Invalid(f"{subject} must be at least {low}, not {value}")
    if isinstance(high, int | float) and value > high:
        raise Invalid(f"{subject} must be at most {high}, not {value}")


def _names(names: Iterable[object]) -> str:
    return ", ".join(f"`{name}`" for name in names)
