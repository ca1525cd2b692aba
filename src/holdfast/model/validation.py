"""Explains input validation errors of msgspec in plain words."""

import re
from collections.abc import Mapping

import msgspec

MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<place>.*)`)?$")
_WRONG_VALUE = re.compile(
    r"Expected `(?P<wanted>[^`]+)`(?P<length> of length)?( (?P<sign>[<>]=?) (?P<limit>[\d.e+-]+))?(, got `(?P<given>.*)`)?"
)
_CHOICE = re.compile(r"Invalid enum value (?P<value>.*)")
_LIMITS = {"<=": "of at most", ">=": "of at least", ">": "above", "<": "below"}
_KINDS = {"int": "an integer", "float": "a number", "str": "a string", "bool": "true or false"}
JSON = _KINDS | {"array": "an array", "object": "an object"}


def explain(error: msgspec.ValidationError) -> str:
    """What is wrong with the input, and where."""
    text = str(error)
    if (found := MISSING.match(text)) is not None:
        path = ".".join(part for part in (found["place"], found["field"]) if part)
        return f'the field "{path}" is missing'
    what, _, where = text.partition(" - at `$")
    path = where.rstrip("`").lstrip(".")
    return f"{path}: {in_plain_words(what)}" if path else in_plain_words(what)


def in_plain_words(what: str, kinds: Mapping[str, str] = JSON) -> str:
    """`Expected `int` <= 9, got `str`` as `expected an integer of at most 9, got a string`. `kinds` names the types of the format."""
    if (choice := _CHOICE.fullmatch(what)) is not None:
        return f"{choice['value']} is not one of the accepted values"
    found = _WRONG_VALUE.fullmatch(what)
    if found is None:
        return f"{what[:1].lower()}{what[1:]}".replace("`", "")
    wanted = " or ".join(kinds.get(kind, kind) for kind in found["wanted"].split(" | ") if kind != "null")
    if found["sign"]:
        length = " with a length" if found["length"] else ""
        wanted = f"{wanted}{length} {_LIMITS[found['sign']]} {found['limit'].removesuffix('.0')}"
    return f"expected {wanted}" + (f", got {kinds.get(found['given'], found['given'])}" if found["given"] else "")
