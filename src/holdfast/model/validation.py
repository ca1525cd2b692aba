"""Explains input validation errors to people."""

import re

import msgspec

MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `\$\.?(?P<place>.*)`)?$")


def explain(error: msgspec.ValidationError) -> str:
    """What is wrong with the input, and where."""
    text = str(error)
    if (found := MISSING.match(text)) is not None:
        path = ".".join(part for part in (found["place"], found["field"]) if part)
        return f'the field "{path}" is missing'
    what, _, where = text.partition(" - at `$")
    path = where.rstrip("`").lstrip(".")
    return f"{path}: {what}".replace("`", "") if path else what.replace("`", "")
