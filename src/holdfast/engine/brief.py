"""Tools described in fewer words, where the window is too small to spend a third of it on them. Pure."""

from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine import size
from holdfast.model.asking import ToolSpec

SHARE = 3
"""The system text and the tools may take the window divided by this."""


def fitting(system: str, tools: tuple[ToolSpec, ...], window: int) -> tuple[ToolSpec, ...]:
    """The tools as they are, or in the first shorter form that leaves room for a conversation. Always the same for the same window."""
    for shorten in _FORMS:
        shown = shorten(tools)
        if size.of_frame(system, shown) * SHARE <= window:
            break
    return shown


def _whole(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    return tuple(tools)


def _first_paragraphs(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    return tuple(
        msgspec.structs.replace(tool, description=" ".join(tool.description.strip().split("\n\n")[0].split()))
        for tool in tools
    )


def _first_sentences(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    return tuple(
        msgspec.structs.replace(
            tool,
            description=tool.description.split(". ")[0],
            parameters={**tool.parameters, "properties": _bare(tool.parameters.get("properties"))},
        )
        for tool in _first_paragraphs(tools)
    )


def _bare(properties: object) -> dict[str, object]:
    """Names and types without a word about them."""
    if not isinstance(properties, dict):
        return {}
    return {
        name: {key: value for key, value in schema.items() if key != "description"}
        for name, schema in properties.items()
        if isinstance(schema, dict)
    }


_FORMS: tuple[Callable[[Sequence[ToolSpec]], tuple[ToolSpec, ...]], ...] = (
    _whole,
    _first_paragraphs,
    _first_sentences,
)
