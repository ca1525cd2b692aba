import pytest

from holdfast.model.errors import Invalid
from holdfast.model.provider import ToolSpec
from holdfast.model.tool import ToolOutput
from holdfast.tools.toolbox import Toolbox


class Echo:
    repeatable = True

    def __init__(self, name, schema):
        self.spec = ToolSpec(name, "says it again", schema)

    def risk(self, arguments, scene):
        return ()

    async def run(self, arguments, scene):
        return ToolOutput.say(str(arguments))


STRICT = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "times": {"type": "integer", "minimum": 1, "maximum": 9},
        "loud": {"type": "boolean"},
        "how": {"type": "string", "enum": ["up", "down"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["text"],
    "additionalProperties": False,
}
LOOSE = {
    "$defs": {"Point": {"type": "object"}},
    "properties": {"at": {"$ref": "#/$defs/Point"}, "any": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "required": ["at"],
}


@pytest.fixture
def toolbox():
    return Toolbox([Echo("echo", STRICT), Echo("mcp__maps__draw", LOOSE), Echo("bare", {})])


def test_tools_are_shown_in_the_order_they_were_given(toolbox):
    assert [spec.name for spec in toolbox.specs] == ["echo", "mcp__maps__draw", "bare"]


def test_two_tools_with_one_name_are_an_error():
    with pytest.raises(AssertionError):
        Toolbox([Echo("echo", {}), Echo("echo", {})])


def test_valid_arguments_are_accepted(toolbox):
    arguments = toolbox.parse("echo", '{"text": "hi", "times": 2, "loud": true, "how": "up", "tags": ["a"]}')

    assert arguments == {"text": "hi", "times": 2, "loud": True, "how": "up", "tags": ["a"]}


def test_empty_text_means_no_arguments(toolbox):
    assert toolbox.parse("bare", "") == {}


def test_an_integer_written_with_a_decimal_point_is_an_integer(toolbox):
    times = toolbox.parse("echo", '{"text": "hi", "times": 2.0}')["times"]

    assert (times, type(times)) == (2, int)


def test_null_for_an_optional_parameter_means_not_given(toolbox):
    assert toolbox.parse("echo", '{"text": "hi", "times": null}') == {"text": "hi"}


def test_line_breaks_in_strings_are_accepted(toolbox):
    assert toolbox.parse("echo", '{"text": "a\nb"}') == {"text": "a\nb"}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("{", "not valid JSON"),
        ('{"text": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["hi"]', "must be an object, not a list"),
        ("{}", "is missing `text`"),
        ('{"text": null}', "`text` must be a string, not null"),
        ('{"text": 1}', "`text` must be a string, not an integer"),
        ('{"text": "hi", "volume": 1}', "no parameter `volume`"),
        ('{"text": "hi", "times": "2"}', "`times` must be an integer, not a string"),
        ('{"text": "hi", "times": 2.5}', "`times` must be an integer, not a number"),
        ('{"text": "hi", "times": 1e999}', "`times` must be an integer"),
        ('{"text": "hi", "times": true}', "`times` must be an integer, not true or false"),
        ('{"text": "hi", "times": 0}', "at least 1"),
        ('{"text": "hi", "times": 10}', "at most 9"),
        ('{"text": "hi", "how": "left"}', "one of 'up', 'down'"),
        ('{"text": "hi", "tags": ["a", 2]}', "`tags`[1] must be a string"),
    ],
)
def test_invalid_arguments_are_refused_with_what_to_correct(toolbox, raw, says):
    with pytest.raises(Invalid) as refused:
        toolbox.parse("echo", raw)

    assert says in str(refused.value)
    assert "echo takes: text (required), times, loud, how, tags." in str(refused.value)


def test_an_unknown_tool_error_lists_the_nearest_and_all_names(toolbox):
    with pytest.raises(Invalid) as refused:
        toolbox.parse("ecko", "{}")

    assert "Did you mean echo?" in str(refused.value)
    assert "mcp__maps__draw" in str(refused.value)


def test_a_foreign_schema_is_checked_as_far_as_it_is_supported(toolbox):
    given = '{"at": {"x": 1}, "any": null, "more": [1]}'

    assert toolbox.parse("mcp__maps__draw", given) == {"at": {"x": 1}, "any": None, "more": [1]}
    with pytest.raises(Invalid):
        toolbox.parse("mcp__maps__draw", "{}")


@pytest.mark.parametrize("schema", [{"properties": 3, "required": 4, "type": 5}, {"type": ["string", "object"]}])
def test_a_malformed_schema_stops_nothing(schema):
    assert Toolbox([Echo("odd", schema)]).parse("odd", '{"a": 1}') == {"a": 1}


def test_arguments_that_are_not_an_object_are_refused_even_without_a_schema(toolbox):
    with pytest.raises(Invalid):
        toolbox.parse("bare", "3")
