"""The tools of a session by name; parses and validates the arguments of a call."""

import difflib
import json
from collections.abc import Container, Iterable

from holdfast.model.errors import Invalid
from holdfast.model.provider import ToolSpec
from holdfast.model.text import refuse_constant
from holdfast.model.tool import Tool
from holdfast.tools.argument_schema import validate


class Toolbox:
    """Keeps the tools in the order given, so that the model sees the same list in every request."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.spec.name in self._tools:
                raise AssertionError(f"two tools are called {tool.spec.name}")
            self._tools[tool.spec.name] = tool
        self.specs = tuple(tool.spec for tool in self._tools.values())
        """The descriptions for the model, in a stable order."""

    def with_tools(self, tools: Iterable[Tool]) -> "Toolbox":
        """These tools and the given ones. One of the given replaces one with the same name, in its place."""
        return Toolbox((self._tools | {tool.spec.name: tool for tool in tools}).values())

    def only(self, names: Container[str]) -> "Toolbox":
        """The tools among these names, in the same order."""
        return Toolbox(tool for name, tool in self._tools.items() if name in names)

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises Invalid with similar names."""
        tool = self._tools.get(name)
        if tool is None:
            raise Invalid(self._unknown_tool(name))
        return tool

    def parse(self, name: str, raw_arguments: str) -> dict[str, object]:
        """The arguments of a call, validated against the tool's schema. Raises Invalid with what to correct."""
        spec = self.get(name).spec
        try:
            arguments = validate(_parse_json(raw_arguments), spec.parameters, f"the call of {name}")
        except Invalid as e:
            raise Invalid(f"{e}. {_usage(spec)}") from e
        if not isinstance(arguments, dict):
            raise Invalid(f"the arguments of {name} must be a JSON object. {_usage(spec)}")
        return arguments

    def _unknown_tool(self, name: str) -> str:
        similar = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        return f"there is no tool called {name!r}.{hint} The tools are: {', '.join(self._tools) or 'none'}."


def _parse_json(raw: str) -> object:
    if not raw.strip():
        return {}
    try:
        # Models often write unescaped line breaks in strings; `strict=False` accepts them.
        return json.loads(raw, strict=False, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as e:
        raise Invalid(f"the arguments are not valid JSON: {e}") from e


def _usage(spec: ToolSpec) -> str:
    properties, required = spec.parameters.get("properties"), spec.parameters.get("required")
    if not isinstance(properties, dict) or not properties:
        return f"{spec.name} takes no parameters."
    needed = required if isinstance(required, list) else []
    names = (f"{name} (required)" if name in needed else str(name) for name in properties)
    return f"{spec.name} takes: {', '.join(names)}."
