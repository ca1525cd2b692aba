"""Parses the header of a skill: the small part of YAML that the format needs, strictly.

Understood are text values (plain, quoted, over several lines, and the blocks `|` and `>`) and one level of names and
values below `metadata`. A list or a nested value of another field is skipped. What YAML would read as anything else,
such as an anchor or a tag, is refused in a value that is used.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.model.errors import Invalid

FENCE = "---"
MAX_LINES = 200
FIELD = re.compile(r"(?P<name>[A-Za-z][\w-]*)\s*:(?:\s+(?P<value>.*))?")
BLOCK = re.compile(r"(?P<style>[|>])(?:[1-9]?[+-]?|[+-][1-9])(?:\s+#.*)?")
COMMENT = re.compile(r"(?:^|\s)#.*")
SINGLE_QUOTED = re.compile(r"'((?:[^']|'')*)'(?:\s+#.*)?")
DOUBLE_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")(?:\s+#.*)?')
NOT_TEXT = tuple("[{&*!%@`")
"""What a plain text cannot begin with."""


class Frontmatter(msgspec.Struct, frozen=True):
    """The text fields of a header, the entries of its map `metadata`, and the text after it."""

    fields: Mapping[str, str]
    metadata: Mapping[str, str]
    body: str


class _Field(msgspec.Struct, frozen=True):
    """A field with the indented lines below it."""

    number: int
    name: str
    value: str
    below: tuple[str, ...]


def parse(text: str, wanted: Sequence[str]) -> Frontmatter:
    """Parse a file that begins with a header; only the `wanted` fields must have text values.

    Raises Invalid with the number of the line that cannot be understood.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        raise Invalid(f"it does not begin with a header between two lines {FENCE}")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise Invalid(f"its header has no end; close it with a line {FENCE}")
    if end > MAX_LINES:
        raise Invalid(f"its header has {end - 1} lines, and at most {MAX_LINES} are read")
    found: dict[str, _Field] = {}
    for field in _split(lines[1:end], 2):
        if field.name in found:
            raise Invalid(f"line {field.number}: the field {field.name!r} is there twice")
        found[field.name] = field
    fields = {name: _text(found[name]) for name in wanted if name in found}
    metadata = _map(found["metadata"]) if "metadata" in found else {}
    return Frontmatter(fields, metadata, "\n".join(lines[end + 1 :]).strip("\n"))


def _split(lines: Sequence[str], first: int) -> Iterator[_Field]:
    """The fields in order. `first` is the number of the first line."""
    starts = [index for index, line in enumerate(lines) if _begins_field(line)]
    for index, line in enumerate(lines[: starts[0] if starts else len(lines)]):
        if line.strip() and not line.lstrip().startswith("#"):
            raise Invalid(f"line {first + index} is not `name: value`")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found = FIELD.fullmatch(lines[start].rstrip())
        if found is None:
            raise Invalid(f"line {first + start} is not `name: value`")
        yield _Field(first + start, found["name"], (found["value"] or "").strip(), tuple(lines[start + 1 : end]))


def _begins_field(line: str) -> bool:
    """Whether a line is neither empty, nor a comment, nor part of the value above it."""
    return bool(line.strip()) and not line.startswith((" ", "\t", "#", "- ")) and line.rstrip() != "-"


def _text(field: _Field) -> str:
    """The text of a field."""
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in field.below):
        raise Invalid(f"line {field.number}: {field.name!r} is indented with tabs; use spaces")
    block = BLOCK.fullmatch(field.value)
    if block is not None:
        return _block(field.below, is_folded=block["style"] == ">")
    is_quoted = field.value.startswith(('"', "'"))
    below = [line.strip() for line in field.below if line.strip() and (is_quoted or not line.lstrip().startswith("#"))]
    return _scalar(" ".join([field.value, *below]).strip(), field)


def _block(lines: Sequence[str], *, is_folded: bool) -> str:
    """The text of a block `|`, or of a block `>`, in which single line breaks are spaces."""
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:].rstrip() for line in lines).strip("\n")
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text) if is_folded else text


def _scalar(raw: str, field: _Field) -> str:
    """The text of a plain or quoted value."""
    if raw.startswith('"'):
        quoted = DOUBLE_QUOTED.fullmatch(raw)
        try:
            return str(json.loads(quoted[1], strict=False)) if quoted else _refuse(field, "has a quote without an end")
        except ValueError:
            return _refuse(field, "has an escape sequence that is not understood")
    if raw.startswith("'"):
        single = SINGLE_QUOTED.fullmatch(raw)
        return single[1].replace("''", "'") if single else _refuse(field, "has a quote without an end")
    if raw.startswith(NOT_TEXT) or raw == "-" or raw.startswith("- "):
        return _refuse(field, "is not text; put it in quotes")
    return COMMENT.sub("", raw).strip()


def _refuse(field: _Field, why: str) -> str:
    raise Invalid(f"line {field.number}: {field.name!r} {why}")


def _map(field: _Field) -> dict[str, str]:
    """The entries of a map of texts; what is nested deeper is left out."""
    indent = min((len(line) - len(line.lstrip(" ")) for line in field.below if line.strip()), default=0)
    if COMMENT.sub("", field.value).strip() or not indent:
        return {}
    return {one.name: _text(one) for one in _split([line[indent:] for line in field.below], field.number + 1)}
