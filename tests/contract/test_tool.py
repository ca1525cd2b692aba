import json
import os

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.toolbox import Toolbox

GOOD = {
    "terminal": {"command": "true"},
    "read_file": {"path": "a.txt"},
    "write_file": {"path": "b.txt", "content": "x"},
    "edit_file": {"path": "a.txt", "old": "one", "new": "two"},
    "search_files": {"pattern": "one"},
}
FAILING = {
    "terminal": {"command": "false"},
    "read_file": {"path": "missing"},
    "write_file": {"path": ".", "content": "x"},
    "edit_file": {"path": "a.txt", "old": "absent", "new": "x"},
    "search_files": {"pattern": "("},
}
PARAMETERS = {
    "terminal": ["command", "workdir", "timeout_seconds", "background"],
    "read_file": ["path", "offset", "limit"],
    "write_file": ["path", "content"],
    "edit_file": ["path", "old", "new", "all"],
    "search_files": ["pattern", "path", "glob"],
}
REPEATABLE = {"read_file", "search_files"}
TYPES = {"string", "integer", "number", "boolean", "array", "object"}


@pytest.fixture
def toolbox():
    return Toolbox(builtin_tools({"PATH": os.defpath}))


@pytest.fixture
def scene(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    return ToolContext(session_id="s", turn_id="t", call_id="c", workdir=tmp_path, files=tmp_path / "files")


def test_the_builtin_tools_are_those_of_the_contract(toolbox):
    assert {spec.name: list(spec.parameters["properties"]) for spec in toolbox.specs} == PARAMETERS


@pytest.mark.parametrize("name", PARAMETERS)
class TestTool:
    def test_its_parameters_are_a_closed_object(self, toolbox, name):
        parameters = toolbox.get(name).spec.parameters

        assert parameters["type"] == "object"
        assert parameters["additionalProperties"] is False
        assert set(parameters["required"]) <= set(parameters["properties"])
        assert all(each["type"] in TYPES and each["description"] for each in parameters["properties"].values())
        assert json.loads(json.dumps(parameters)) == parameters

    def test_its_description_is_text_for_the_model(self, toolbox, name):
        description = toolbox.get(name).spec.description

        assert len(description) > 100
        assert description == description.strip()

    def test_it_declares_whether_it_may_run_again(self, toolbox, name):
        assert toolbox.get(name).repeatable is (name in REPEATABLE)

    @pytest.mark.parametrize("raw", ["", "[]", "{", "{}", '{"no_such_parameter": 1}'])
    def test_bad_arguments_are_refused_before_it_runs(self, toolbox, name, raw):
        with pytest.raises(Invalid):
            toolbox.parse(name, raw)

    def test_a_parameter_of_the_wrong_type_is_refused(self, toolbox, name):
        for parameter in PARAMETERS[name]:
            with pytest.raises(Invalid) as refused:
                toolbox.parse(name, json.dumps({**GOOD[name], parameter: {"a": 1}}))
            assert f"`{parameter}` must be" in str(refused.value)

    @pytest.mark.process
    async def test_a_call_returns_output_and_success(self, toolbox, name, scene):
        arguments = toolbox.parse(name, json.dumps(GOOD[name]))
        tool = toolbox.get(name)

        assert tool.risk(arguments, scene) == ()
        output = await tool.run(arguments, scene)
        assert isinstance(output, ToolOutput)
        assert output.ok
        assert output.parts

    @pytest.mark.process
    async def test_a_failure_is_an_output_and_not_an_exception(self, toolbox, name, scene):
        arguments = toolbox.parse(name, json.dumps(FAILING[name]))

        output = await toolbox.get(name).run(arguments, scene)

        assert not output.ok
        assert output.parts[0].text
