"""The tools of a session by name, and the way from the model's words to checked arguments."""

import difflib
import json
from collections.abc import Iterable
from typing import NoReturn

from holdfast.model.asking import ToolSpec
from holdfast.model.errors import Invalid
from holdfast.model.tool import Tool
from holdfast.tools.schema import fit


class Toolbox:
    """Holds tools in the order given, so that the model is shown the same list each time."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.spec.name in self._tools:
                raise AssertionError(f"two tools are called {tool.spec.name}")
            self._tools[tool.spec.name] = tool

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises Invalid with the nearest names, for the model to choose from."""
        tool = self._tools.get(name)
        if tool is None:
            raise Invalid(self._unknown(name))
        return tool

    def parse(self, name: str, raw_arguments: str) -> dict[str, object]:
        """The arguments of a call, checked against the tool's schema. Raises Invalid with what to mend."""
        spec = self.get(name).spec
        try:
            arguments = fit(_read(raw_arguments), spec.parameters, f"the call of {name}")
        except Invalid as e:
            raise Invalid(f"{e}. {_usage(spec)}") from e
        if not isinstance(arguments, dict):
            raise Invalid(f"the arguments of {name} must be a JSON object. {_usage(spec)}")
        return arguments

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"there is no tool called {name!r}.{hint} The tools are: {', '.join(self._tools) or 'none'}."


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _read(raw: str) -> object:
    if not raw.strip():
        return {}
    try:
        # Models often leave line breaks in strings as they are; nothing is lost by taking them so.
        return json.loads(raw, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError) as e:
        raise Invalid(f"the arguments are not valid JSON: {e}") from e


def _usage(spec: ToolSpec) -> str:
    properties, required = spec.parameters.get("properties"), spec.parameters.get("required")
    if not isinstance(properties, dict) or not properties:
        return f"{spec.name} takes no parameters."
    needed = required if isinstance(required, list) else []
    names = (f"{name} (required)" if name in needed else str(name) for name in properties)
    return f"{spec.name} takes: {', '.join(names)}."
