"""`POST /v1/responses/compact`: summarize a conversation as one item, which later requests send in place of it."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.context import ApiContext, get_context
from holdfast.api.errors import ApiError
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat import LARGE_BODY
from holdfast.api.openai.responses import input_items, lookup
from holdfast.api.openai.responses.document import usage_document
from holdfast.api.openai.responses.input_items import Item
from holdfast.api.openai.responses.reply import json_response
from holdfast.engine.context.context import Context
from holdfast.model.message import Message
from holdfast.store.database import Transaction
from holdfast.store.repos import log

RESPONSE_ID, ITEM_ID = "resp_cmp_", "cmp_"


class CompactResponsesRequest(msgspec.Struct, frozen=True):
    """Parameters of a request."""

    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    service_tier: Literal["auto", "default"] | None = None


async def compact(request: Request) -> Response:
    """Compact a conversation into one item for later requests. Stores nothing."""
    context = get_context(request)
    body = await request.body()
    wanted, items = await asyncio.to_thread(_parse, body) if len(body) > LARGE_BODY else _parse(body)
    model = context.models.resolve(wanted.model) or context.models.default
    messages = await _earlier(context, wanted.previous_response_id)
    given, _ = await lookup.resolve_items(context, items)
    system = "\n\n".join(filter(None, (input_items.system_text(items), wanted.instructions)))
    first = messages[-1].seq + 1 if messages else 1
    messages += [one.as_message(seq) for seq, one in enumerate(given, first)]
    if not messages:
        raise ApiError(
            400, "invalid_request", "there is nothing to compact: send input or previous_response_id", "input"
        )
    written = await context.engine.summarize(model, messages, system)
    ids, now = context.engine.services.ids, context.engine.services.clock.now()
    item = {
        "id": ids.make(ITEM_ID),
        "type": "compaction",
        "encrypted_content": input_items.encode_summary(written.text),
    }
    document: dict[str, object] = {"id": ids.make(RESPONSE_ID), "object": "response.compaction", "output": [item]}
    return json_response({**document, "created_at": now // 1_000_000, "usage": usage_document(written.usage)}, {})


def _parse(body: bytes) -> tuple[CompactResponsesRequest, Sequence[Item]]:
    """The request and its items. Raises ApiError."""
    data = chat_request.decode(body)
    chat_request.collect_options(data, CompactResponsesRequest, (), {})
    known = {name: value for name, value in data.items() if name in CompactResponsesRequest.__struct_fields__}
    wanted = chat_request.convert(known, CompactResponsesRequest)
    return wanted, input_items.parse_items(wanted.input) if wanted.input is not None else []


async def _earlier(context: ApiContext, previous: str | None) -> list[Message]:
    """The messages up to the end of a response, as the model sees them."""
    if previous is None:
        return []
    known = await lookup.find_response(context, previous, "previous_response_id")
    if known.position.is_open:
        raise ApiError(409, "conflict", f"response {previous} is not over", "previous_response_id")

    def read(tx: Transaction) -> list[Message]:
        return list(Context(log.read(tx, known.session.id, last=known.position.last)).view)

    return await context.database.read(read)
