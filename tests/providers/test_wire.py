import json

import pytest

from holdfast.model.asking import ToolSpec
from holdfast.providers.wire import argument_text, arguments, clean, offered, safe_name, schema


def test_what_utf8_cannot_carry_becomes_a_replacement_character() -> None:
    assert clean("a\ud800b\0c😀") == "a\ufffdb\ufffdc😀"


@pytest.mark.parametrize(
    "raw",
    ["{", "[1]", '"x"', "null", "5", '{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", '{"a": ' * 500],
    ids=["half", "list", "text", "null", "number", "nan", "infinite", "huge", "half-and-deep"],
)
def test_arguments_that_are_no_json_object_are_shown_as_they_were_written(raw: str) -> None:
    assert arguments(raw) == {"_unparsed": raw}
    assert json.loads(argument_text(raw)) == {"_unparsed": raw}


def test_arguments_that_nest_too_deep_are_shown_as_they_were_written() -> None:
    deep = '{"a": ' * 5000 + "1" + "}" * 5000

    assert arguments(deep) == {"_unparsed": deep}


def test_no_arguments_are_an_empty_object() -> None:
    assert arguments("") == {}
    assert argument_text("") == "{}"
    assert argument_text(" ") == '{"_unparsed":" "}'


def test_valid_arguments_go_back_letter_by_letter() -> None:
    assert argument_text('{ "b": 1,\n"a": "ü" }') == '{ "b": 1,\n"a": "ü" }'


def test_lone_surrogates_in_arguments_are_replaced_also_when_they_are_escaped() -> None:
    assert arguments(r'{"\ud800": ["x\udc00", {"y": "\u0000"}]}') == {"\ufffd": ["x\ufffd", {"y": "\ufffd"}]}
    assert json.loads(argument_text(r'{"a": "\ud800"}')) == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("name", "safe"), [("read_file", "read_file"), ("mcp.server/tool", "mcp_server_tool"), ("", "unnamed"), ("ü", "_")]
)
def test_names_are_made_of_what_all_vendors_allow(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_two_tools_never_share_a_name_on_the_wire() -> None:
    tools = [ToolSpec(name, "", {}) for name in ("a.b", "a_b", "a/b", "a.b")]

    named = offered(tools)

    assert {name: tool.name for name, tool in named.items()} == {"a_b": "a.b", "a_b_2": "a_b", "a_b_3": "a/b"}


def test_long_names_stay_apart_within_the_limit() -> None:
    named = offered([ToolSpec("x" * 100 + end, "", {}) for end in "ab"])

    assert len(named) == 2
    assert all(len(name) <= 64 for name in named)


def test_a_schema_is_of_type_object_and_has_no_alternatives_at_its_top() -> None:
    given = {"anyOf": [{}], "required": ["a"], "properties": {"a": {"anyOf": [{"type": "string"}]}}}

    assert schema(given) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"anyOf": [{"type": "string"}]}},
    }
    assert schema({}) == {"type": "object", "properties": {}}
