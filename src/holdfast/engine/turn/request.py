"""Builds model requests: the system text, the tools, the options of the turn, and the messages in view. Pure.

A client of the API may set some of it for one turn (`RequestOptions`). Tools get shorter descriptions if they and the
system text would take more than a third of the window.
"""

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.engine.context.context import Context
from holdfast.engine.context.tokens import estimate_frame
from holdfast.model.event import ClientTool, RequestOptions
from holdfast.model.instructions import PARTS, Recorded
from holdfast.model.provider import ModelRequest, ToolSpec

SHARE = 3
"""The system text and the tools may take the window divided by this."""
EMPTY: dict[str, object] = {"type": "object", "properties": {}}


class RequestFrame(msgspec.Struct, frozen=True):
    """What every request of a turn includes besides the messages, what it was built from, and its estimated tokens."""

    options: RequestOptions
    own_tools: tuple[ToolSpec, ...]
    system: str
    window: int | None
    tools: tuple[ToolSpec, ...]
    tokens: int

    def request(self, context: Context, turn_id: str, model: str) -> ModelRequest:
        """Build the request for the next reply of the turn. The options of the turn override the session's model."""
        options = self.options
        return ModelRequest(
            model=options.model or model,
            system=self.system,
            messages=context.visible_to(turn_id),
            tools=self.tools,
            cache=context.request_cache,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            options=options.options,
        )


def build_frame(
    options: RequestOptions,
    own_tools: tuple[ToolSpec, ...],
    *,
    session_system: str | None,
    default_system: str,
    recorded: Recorded,
    window: int | None,
    known: RequestFrame | None,
) -> RequestFrame:
    """Build the frame of a turn's requests. `known`, the last one, is returned while nothing has changed: tools can be many.

    The system text is the turn's instructions and system text, else the session's, else the default; then the recorded
    parts. Without a `window` the tools are never shortened.
    """
    given = [text for text in (options.instructions, options.system or session_system) if text]
    system = system_text("\n\n".join(given), default_system, recorded)
    parts = (options, own_tools, system, window)
    if known is not None and parts == (known.options, known.own_tools, known.system, known.window):
        return known
    tools = offered(options, own_tools)
    if window is not None:
        tools = fitting(system, tools, window)
    return RequestFrame(*parts, tools, estimate_frame(system, tools))


def system_text(given: str, default: str, recorded: Recorded) -> str:
    """The system text of a request: the client's own, else the recorded built-in one, and the other recorded parts."""
    if not recorded:
        return given or default
    built_in = recorded.get("system")
    base = given or (built_in.text if built_in is not None else "") or default
    rest = [recorded[part].text for part in PARTS if part != "system" and part in recorded]
    return "\n\n".join(text for text in (base, *rest) if text)


def offered(options: RequestOptions, ours: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """The tools that the model may call: ours and the client's. A client's tool replaces one of ours with the same name."""
    if not options.use_tools:
        return ()
    if not options.our_tools:
        ours = ()
    if not options.tools:
        return ours
    names = {offer.name for offer in options.tools}
    return (*(tool for tool in ours if tool.name not in names), *map(as_spec, options.tools))


def as_spec(offer: ClientTool) -> ToolSpec:
    """Describe a client's tool to the model."""
    found = json.loads(offer.parameters)
    parameters = found if isinstance(found, dict) and found else EMPTY
    return ToolSpec(offer.name, offer.description, parameters, offer.strict)


def fitting(system: str, tools: tuple[ToolSpec, ...], window: int) -> tuple[ToolSpec, ...]:
    """The tools, or the first shorter form of them that leaves room for a conversation. Depends only on the arguments."""
    for shorten in _FORMS:
        shown = shorten(tools)
        if estimate_frame(system, shown) * SHARE <= window:
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


def _required_parameters(tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The shortest form. A call may still have the other parameters, which results of tools mention where they help."""
    return tuple(
        msgspec.structs.replace(tool, parameters={**tool.parameters, "properties": _required(tool.parameters)})
        for tool in _first_sentences(tools)
    )


def _required(parameters: Mapping[str, object]) -> dict[str, object]:
    properties, required = parameters.get("properties"), parameters.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {name: schema for name, schema in properties.items() if name in required}


def _bare(properties: object) -> dict[str, object]:
    """The properties without their descriptions."""
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
    _required_parameters,
)
