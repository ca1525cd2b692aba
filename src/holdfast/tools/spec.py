"""Loads the specification of a tool: the description from its `.md` file, the parameters from the code."""

from pathlib import Path

from holdfast.model.provider import ToolSpec


def load_spec(name: str, properties: dict[str, object], required: tuple[str, ...]) -> ToolSpec:
    description = Path(__file__).with_name(f"{name}.md").read_text("utf-8").strip()
    parameters: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return ToolSpec(name, description, parameters)
