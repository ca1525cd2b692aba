"""A request under the terms of its turn: what a client of the API may ask for, for one turn."""

import json

import msgspec

from holdfast.model.asking import Request, ToolSpec
from holdfast.model.event import Offer, Terms

EMPTY: dict[str, object] = {"type": "object", "properties": {}}


def offered(terms: Terms, ours: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """What the model may call: our tools and the client's. Of two with the same name the client's counts."""
    if not terms.use_tools:
        return ()
    if not terms.our_tools:
        ours = ()
    if not terms.tools:
        return ours
    names = {offer.name for offer in terms.tools}
    return (*(tool for tool in ours if tool.name not in names), *map(as_spec, terms.tools))


def as_spec(offer: Offer) -> ToolSpec:
    """The client's tool as the model sees it."""
    found = json.loads(offer.parameters)
    return ToolSpec(offer.name, offer.description, found if isinstance(found, dict) and found else EMPTY)


def system_text(terms: Terms, own: str | None, built_in: str) -> str:
    """What the model is told ahead of everything: the turn's instructions and system text, or else what the session has."""
    said = [text for text in (terms.instructions, terms.system or own) if text]
    return "\n\n".join(said) or built_in


def under(terms: Terms, request: Request) -> Request:
    """The request as the terms say; the system text and the tools are in it already."""
    if terms == Terms():
        return request
    return msgspec.structs.replace(
        request,
        model=terms.model or request.model,
        max_tokens=request.max_tokens if terms.max_tokens is None else terms.max_tokens,
        temperature=terms.temperature,
        options=terms.options,
    )
