"""docs/events.md says what the code does, in both directions: kinds, fields, types, defaults and the worked example."""

import re
import subprocess
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from holdfast.model import entry, event, message
from holdfast.model.approval import Proposal
from holdfast.model.entry import decode, encode, link
from holdfast.model.event import KIND_OF, KINDS, ClientTool, Delegation, RequestOptions, Usage
from holdfast.model.finding import Finding
from holdfast.model.plan import PlanItem

TEXT = (Path(__file__).parent.parent / "docs" / "events.md").read_text("utf-8")
PARTS = {msgspec.inspect.type_info(part).tag: part for part in get_args(message.Part)}
NAMED = {frozenset(get_args(message.Part)): "part", frozenset(get_args(message.Content)): "content part"}


def section(title: str, text: str = TEXT) -> str:
    """The text under a heading of the second level."""
    _, _, rest = text.partition(f"\n## {title}\n")
    assert rest, f"docs/events.md has no section {title!r}"
    return rest.partition("\n## ")[0]


def tables(text: str) -> dict[str, list[tuple[str, str, str]]]:
    """Each heading of the third level, with its fields as name, type and default."""
    _, *pieces = re.split(r"^### `(\w+)`$", text, flags=re.MULTILINE)
    return {name: fields(body) for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def fields(text: str) -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, flags=re.MULTILINE)
    assert all(meaning.strip() for *_, meaning in rows)
    return [(name, kind.strip(), default.strip()) for name, kind, default, _ in rows]


def expected(cls: type) -> list[tuple[str, str, str]]:
    """The fields of a struct as the document writes them."""
    return [(f.encode_name, words(f.type), default(f)) for f in msgspec.inspect.type_info(cls).fields]


def words(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.IntType():
            return "integer"
        case msgspec.inspect.FloatType():
            return "number"
        case msgspec.inspect.BoolType():
            return "boolean"
        case msgspec.inspect.NoneType():
            return "null"
        case msgspec.inspect.LiteralType(values):
            return "one of " + ", ".join(f"`{value}`" for value in sorted(values))
        case msgspec.inspect.DictType(value_type=value):
            return f"object of {words(value)}s"
        case msgspec.inspect.VarTupleType(item):
            return f"list of {words(item)}s"
        case msgspec.inspect.StructType(cls=cls):
            return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
        case msgspec.inspect.UnionType(types):
            structs = frozenset(t.cls for t in types if isinstance(t, msgspec.inspect.StructType))
            if structs:
                return NAMED[structs]
            return " or ".join(words(t) for t in sorted(types, key=lambda t: isinstance(t, msgspec.inspect.NoneType)))
    raise AssertionError(f"the document has no word for {kind}")


def default(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{entry.dumps(msgspec.to_builtins(value))}`"


def test_every_kind_is_described_and_no_other() -> None:
    assert list(tables(section("Kinds"))) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_of_a_kind_are_those_of_the_code(kind: str) -> None:
    assert tables(section("Kinds"))[kind] == expected(KINDS[kind])


def test_the_parts_are_those_of_the_code() -> None:
    assert tables(section("Parts")) == {tag: expected(cls) for tag, cls in PARTS.items()}


def test_content_parts_are_named() -> None:
    named = re.search(r"\*Content parts\* are (.+?)\.", section("Parts"))
    assert named is not None
    assert re.findall(r"`(\w+)`", named[1]) == [tag for tag, cls in PARTS.items() if cls in get_args(message.Content)]


@pytest.mark.parametrize(
    ("title", "cls"),
    [
        ("Usage", Usage),
        ("Request options", RequestOptions),
        ("Client tools", ClientTool),
        ("Instruction sources", event.InstructionSource),
        ("Proposals", Proposal),
        ("Delegations", Delegation),
        ("Findings", Finding),
        ("Plan items", PlanItem),
    ],
)
def test_shared_fields_are_those_of_the_code(title: str, cls: type) -> None:
    assert fields(section(title)) == expected(cls)


def test_annotations_are_named() -> None:
    named = re.search(r"\*Annotations\* are (.+?)\.", TEXT)
    assert named is not None
    assert re.findall(r"`(\w+)`", named[1]) == sorted(KIND_OF[cls] for cls in event.ANNOTATIONS)


def test_version_limits_and_genesis_are_those_of_the_code() -> None:
    assert f"This is version {entry.FORMAT} of the format." in TEXT
    assert f"{entry.MAX_BODY_BYTES // 2**20} MiB" in TEXT
    assert f"`{entry.GENESIS}`" in TEXT


def example() -> list[dict[str, str]]:
    rows = re.findall(r"^seq  (.+)\nkind (.+)\nat   (.+)\nbody (.+)\nhash (.+)$", section("The hash"), re.MULTILINE)
    assert rows
    return [dict(zip(("seq", "kind", "at", "body", "hash"), row, strict=True)) for row in rows]


def test_the_worked_example_has_the_hashes_of_the_code() -> None:
    previous = entry.GENESIS
    for row in example():
        previous = link(previous, row["kind"], int(row["at"]), row["body"])

        assert previous == row["hash"], row["seq"]


def test_the_worked_example_is_serialized_as_by_the_code() -> None:
    for row in example():
        assert encode(decode(row["kind"], row["body"])) == row["body"]


@pytest.mark.process
def test_the_commands_of_the_worked_example_print_its_hashes() -> None:
    commands, printed = re.findall(
        r"^```(?:sh|text)\n((?:printf|[0-9a-f]{64}).+?)^```$", TEXT, re.MULTILINE | re.DOTALL
    )
    output = subprocess.run(["sh", "-e"], input=commands, capture_output=True, text=True, check=True).stdout

    assert output == printed
    assert [line.split()[0] for line in printed.splitlines()] == [row["hash"] for row in example()]
