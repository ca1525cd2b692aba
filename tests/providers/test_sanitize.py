import json

import pytest

from holdfast.model.provider import ToolSpec
from holdfast.providers.sanitize import (
    clean,
    name_tools,
    normalize_arguments,
    object_schema,
    parse_arguments,
    safe_name,
)


def test_text_that_utf8_cannot_encode_becomes_a_replacement_character() -> None:
    assert clean("a\ud800b\0c😀") == "a\ufffdb\ufffdc😀"


@pytest.mark.parametrize(
    "raw",
    ["{", "[1]", '"x"', "null", "5", '{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}", '{"a": ' * 500],
    ids=["half", "list", "text", "null", "number", "nan", "infinite", "huge", "half-and-deep"],
)
def test_arguments_that_are_not_a_json_object_are_kept_unparsed(raw: str) -> None:
    assert parse_arguments(raw) == {"_unparsed": raw}
    assert json.loads(normalize_arguments(raw)) == {"_unparsed": raw}


def test_arguments_that_nest_too_deeply_are_kept_unparsed() -> None:
    deep = '{"a": ' * 5000 + "1" + "}" * 5000

    assert parse_arguments(deep) == {"_unparsed": deep}


def test_no_arguments_are_an_empty_object() -> None:
    assert parse_arguments("") == {}
    assert normalize_arguments("") == "{}"
    assert normalize_arguments(" ") == '{"_unparsed":" "}'


def test_valid_arguments_are_sent_back_unchanged() -> None:
    assert normalize_arguments('{ "b": 1,\n"a": "ü" }') == '{ "b": 1,\n"a": "ü" }'


def test_lone_surrogates_in_arguments_are_replaced_also_when_they_are_escaped() -> None:
    assert parse_arguments(r'{"\ud800": ["x\udc00", {"y": "\u0000"}]}') == {"\ufffd": ["x\ufffd", {"y": "\ufffd"}]}
    assert json.loads(normalize_arguments(r'{"a": "\ud800"}')) == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("name", "safe"), [("read_file", "read_file"), ("mcp.server/tool", "mcp_server_tool"), ("", "unnamed"), ("ü", "_")]
)
def test_names_contain_only_characters_that_all_vendors_allow(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_two_tools_never_share_a_name_in_a_request() -> None:
    tools = [ToolSpec(name, "", {}) for name in ("a.b", "a_b", "a/b", "a.b")]

    named = name_tools(tools)

    assert {name: tool.name for name, tool in named.items()} == {"a_b": "a.b", "a_b_2": "a_b", "a_b_3": "a/b"}


def test_long_names_stay_distinct_within_the_limit() -> None:
    named = name_tools([ToolSpec("x" * 100 + end, "", {}) for end in "ab"])

    assert len(named) == 2
    assert all(len(name) <= 64 for name in named)


def test_a_schema_has_type_object_and_no_alternatives_at_its_top() -> None:
    given = {"anyOf": [{}], "required": ["a"], "properties": {"a": {"anyOf": [{"type": "string"}]}}}

    assert object_schema(given) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"anyOf": [{"type": "string"}]}},
    }
    assert object_schema({}) == {"type": "object", "properties": {}}
