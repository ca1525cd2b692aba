"""The part of JSON schema that tools use, checked in the model's terms.

Keywords it does not know (`$ref`, `anyOf`, formats, …) are let through: the tool or its server judges them.
"""

from collections.abc import Callable, Collection, Iterable

from holdfast.model.errors import Invalid


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return value.is_integer() if isinstance(value, float) else isinstance(value, int)


TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: _is_number(value) and _is_whole(value)),
    "number": ("a number", _is_number),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}


def fit(value: object, schema: object, where: str) -> object:
    """The value as the schema wants it. Raises Invalid with a sentence that says what to mend."""
    if not isinstance(schema, dict):
        return value
    types = _types(schema)
    if types and not any(TYPES[name][1](value) for name in types):
        wanted = " or ".join(TYPES[name][0] for name in types)
        raise Invalid(f"{where} must be {wanted}, not {_kind(value)}")
    if isinstance(choices := schema.get("enum"), list) and value not in choices:
        raise Invalid(f"{where} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    if isinstance(value, dict):
        return _fit_object(value, schema, where)
    if isinstance(value, list):
        return [fit(item, schema.get("items"), f"{where}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_range(value, schema, where)
        return int(value) if types == ["integer"] else value
    return value


def _types(schema: dict[str, object]) -> list[str]:
    given = schema.get("type")
    names = given if isinstance(given, list) else [given]
    return [name for name in names if name in TYPES]


def _kind(value: object) -> str:
    return next((noun for noun, fits in TYPES.values() if fits(value)), type(value).__name__)


def _fit_object(value: dict[str, object], schema: dict[str, object], where: str) -> dict[str, object]:
    given = schema.get("properties")
    properties = given if isinstance(given, dict) else {}
    listed = schema.get("required")
    required: Collection[object] = listed if isinstance(listed, list) else ()
    if missing := [name for name in required if name not in value]:
        raise Invalid(f"{where} lacks {_names(missing)}")
    unknown = [name for name in value if name not in properties]
    if unknown and schema.get("additionalProperties") is False:
        raise Invalid(f"{where} has no parameter {_names(unknown)}")
    return {
        name: fit(item, properties.get(name), f"`{name}`")
        for name, item in value.items()
        if item is not None or name in required or _takes_null(properties.get(name))
    }


def _takes_null(schema: object) -> bool:
    """Models write null for "not given"; it is dropped where the schema names types and null is none of them."""
    return not isinstance(schema, dict) or not _types(schema) or "null" in _types(schema)


def _check_range(value: float, schema: dict[str, object], where: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if isinstance(low, int | float) and value < low:
        raise Invalid(f"{where} must be at least {low}, not {value}")
    if isinstance(high, int | float) and value > high:
        raise Invalid(f"{where} must be at most {high}, not {value}")


def _names(names: Iterable[object]) -> str:
    return ", ".join(f"`{name}`" for name in names)
