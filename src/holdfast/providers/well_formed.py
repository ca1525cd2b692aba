"""Merges the deltas of replies, and repairs their text: some servers split a surrogate pair over two chunks."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator

import msgspec

from holdfast.model.errors import ProviderFailed
from holdfast.model.message import Part, Reasoning, Text, ToolCall
from holdfast.model.provider import Delta, ModelReply, ReasoningDelta, TextDelta
from holdfast.model.surrogates import SurrogateJoiner, repair_text
from holdfast.providers.error_mapping import ProviderErrorResponse


async def join_surrogates(items: AsyncIterator[Delta | ModelReply]) -> AsyncGenerator[Delta | ModelReply, None]:
    """The same stream with surrogate pairs joined. A lone surrogate becomes U+FFFD in the reply. Closing it closes `items`."""
    text, reasoning = SurrogateJoiner(), SurrogateJoiner()
    try:
        async for item in items:
            match item:
                case TextDelta():
                    if piece := text.add(item.text):
                        yield TextDelta(piece)
                case ReasoningDelta():
                    if piece := reasoning.add(item.text):
                        yield ReasoningDelta(piece)
                case ModelReply():
                    parts = tuple(_part(part) for part in item.parts)
                    yield msgspec.structs.replace(item, parts=parts, model=repair_text(item.model))
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()


def merge_deltas(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """The same text in as few deltas as possible: those that arrive together are shown together."""
    kind: type[Delta] = TextDelta
    texts: list[str] = []
    try:
        for delta in deltas:
            if type(delta) is not kind and texts:
                yield kind("".join(texts))
                texts.clear()
            kind = type(delta)
            texts.append(delta.text)
    except (ProviderErrorResponse, ProviderFailed):  # what came before the error is shown
        if texts:
            yield kind("".join(texts))
        raise
    if texts:
        yield kind("".join(texts))


def _part(part: Part) -> Part:
    match part:
        case Text():
            return msgspec.structs.replace(part, text=repair_text(part.text))
        case Reasoning():
            opaque = {name: repair_text(value) for name, value in part.opaque.items()}
            return msgspec.structs.replace(part, text=repair_text(part.text), opaque=opaque)
        case ToolCall():
            return ToolCall(repair_text(part.id), repair_text(part.name), repair_text(part.arguments))
        case _:
            return part
