"""`/v1/conversations`: each conversation is a session. What a response says in it, and what is added here, is in its log."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api import headers
from holdfast.api.context import ApiContext, get_context
from holdfast.api.errors import ApiError
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat import LARGE_BODY
from holdfast.api.openai.conversations.items import ListedItem, list_items
from holdfast.api.openai.paging import page_of, parse_page, refuse_unknown
from holdfast.api.openai.responses import input_items, lookup
from holdfast.api.openai.responses.ids import conversation_id, conversation_session
from holdfast.api.openai.responses.input_items import Item
from holdfast.api.openai.responses.reply import json_response
from holdfast.api.openai.responses.request import ACCEPTED_INCLUDES
from holdfast.api.openai.turn_stream import is_disconnected
from holdfast.engine.admission import conversation_items
from holdfast.engine.admission.admit import API
from holdfast.engine.admission.conversation_items import AddedItems, ItemsRequest
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import MetadataChanged, SessionOpened
from holdfast.model.ids import SESSION, TURN
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions

MAX_ITEMS = 20
"""Items that one request may add."""
REASON = "deleted through /v1/conversations"
Items = list[dict[str, Any]]
T = TypeVar("T", bound=msgspec.Struct)
W = TypeVar("W")


class NewConversationRequest(msgspec.Struct, frozen=True):
    items: Items | None = None
    metadata: dict[str, str] | None = None


class ConversationUpdateRequest(msgspec.Struct, frozen=True):
    metadata: dict[str, str] | None


class NewItemsRequest(msgspec.Struct, frozen=True):
    items: Items


async def create(request: Request) -> Response:
    """Create a conversation, with up to 20 items. It is durable when the response arrives."""
    context = get_context(request)
    body, items, digest = await _body(request, NewConversationRequest)
    asked = _items_request(request, digest, (await lookup.resolve_items(context, items))[0])
    opened = SessionOpened(source="api", model=context.models.default, mode=context.engine.services.mode)
    session_id, metadata = context.engine.services.ids.make(SESSION), chat_request.check_metadata(body.metadata)
    is_answered = context.engine.intake.answered.__contains__

    def work(tx: Transaction) -> AddedItems:
        return conversation_items.create_conversation(tx, session_id, opened, asked, metadata, is_answered=is_answered)

    added = await _write(context, work, session_id)
    return await _mark_answered(request, added, _conversation(added.session, metadata))


async def retrieve(request: Request) -> Response:
    """Return a conversation."""
    session = await _find(request)
    metadata = await get_context(request).database.read(conversation_items.get_metadata, session.id)
    return _conversation(session, metadata)


async def update(request: Request) -> Response:
    """Replace the metadata of a conversation."""
    context, session = get_context(request), await _find(request)
    metadata = chat_request.check_metadata((await _body(request, ConversationUpdateRequest))[0].metadata)
    at = context.engine.services.clock.now()
    await context.database.write(log.annotate, session.id, MetadataChanged(metadata=metadata), at=at)
    return _conversation(session, metadata)


async def delete(request: Request) -> Response:
    """Move the session of a conversation to the trash."""
    session = await _find(request)
    await get_context(request).engine.actions.trash(session.id, reason=REASON)
    gone = {"id": conversation_id(session.id), "object": "conversation.deleted", "deleted": True}
    return json_response(gone, _headers(session))


async def read_items(request: Request) -> Response:
    """List the items page by page, newest first by default."""
    page = parse_page(request.query_params, ("include", "include[]"))
    _check_includes(request)
    session = await _find(request)
    found = [item.document for item in await _items(request, session)]
    return json_response(page_of(found, page), _headers(session))


async def add_items(request: Request) -> Response:
    """Add up to 20 items without asking the model. They are durable when the response arrives."""
    refuse_unknown(request.query_params, ("include", "include[]"))
    _check_includes(request)
    context, session = get_context(request), await _find(request)
    body, items, digest = await _body(request, NewItemsRequest)
    if not body.items:
        raise ApiError(400, "invalid_request", "items must not be empty", "items")
    asked = _items_request(request, digest, (await lookup.resolve_items(context, items))[0], session.id)
    is_answered = context.engine.intake.answered.__contains__
    await context.engine.intake.verify(session.id)
    added = await _write(
        context,
        lambda tx: conversation_items.add_items(tx, session.id, asked, is_answered=is_answered),
        session.id,
    )
    entries = await context.database.read(conversation_items.read_added, added)
    found = [item.document for item in list_items(session.id, entries)]
    ends = {"first_id": found[0]["id"] if found else "", "last_id": found[-1]["id"] if found else ""}
    response = json_response({"object": "list", "data": found, **ends, "has_more": False}, _headers(session))
    return await _mark_answered(request, added, response)


async def retrieve_item(request: Request) -> Response:
    """Return one item."""
    refuse_unknown(request.query_params, ("include", "include[]"))
    _check_includes(request)
    session = await _find(request)
    return json_response((await _item(request, session)).document, _headers(session))


async def delete_item(request: Request) -> Response:
    """Remove a message or a result from the context of the model. The log keeps it."""
    context, session = get_context(request), await _find(request)
    item = await _item(request, session)
    if item.document["type"] not in ("message", "function_call_output"):
        reason = f"an item of type {item.document['type']} cannot be deleted: each result needs its call"
        raise ApiError(400, "unsupported_content", reason, "item_id")
    at = context.engine.services.clock.now()
    await context.engine.intake.verify(session.id)
    await _write(context, lambda tx: conversation_items.remove_item(tx, session.id, item.seq, at=at), session.id)
    return _conversation(session, await context.database.read(conversation_items.get_metadata, session.id))


async def _body(request: Request, kind: type[T]) -> tuple[T, Sequence[Item], str]:
    """The body, its items and its digest; a large one is parsed in a thread. Raises ApiError."""
    body = await request.body()
    return await asyncio.to_thread(_parse, body, kind) if len(body) > LARGE_BODY else _parse(body, kind)


def _parse(body: bytes, kind: type[T]) -> tuple[T, Sequence[Item], str]:
    data = chat_request.decode(body) if body.strip() else {}
    refuse_unknown(data, kind.__struct_fields__)
    parsed = chat_request.convert(data, kind)
    return parsed, _parse_items(getattr(parsed, "items", None) or []), chat_request.request_digest(data)


def _items_request(request: Request, digest: str, given: Sequence[ClientMessage], session_id: str = "") -> ItemsRequest:
    """The messages, with what identifies a repeat of the request; without a session for a new one."""
    services = get_context(request).engine.services
    return ItemsRequest(
        given=given,
        turn_ids=[services.ids.make(TURN) for _ in range(max(1, len(given)))],
        owner=f"{API} conversations {session_id}",
        key=headers.parse_idempotency_key(request.headers),
        request=digest,
        retried=headers.is_retry(request.headers),
        worker_id=services.worker_id,
        at=services.clock.now(),
    )


async def _mark_answered(request: Request, added: AddedItems, response: Response) -> Response:
    """Return the response, and record it as answered if the client is still connected."""
    if not await is_disconnected(request):
        get_context(request).engine.intake.answered.add(added.turn_id)
    return response


def _parse_items(given: Items) -> Sequence[Item]:
    """Parse the items of a request. Raises ApiError."""
    if not given:
        return ()
    if len(given) > MAX_ITEMS:
        raise ApiError(400, "invalid_value", f"at most {MAX_ITEMS} items can be added at a time", "items")
    items = input_items.parse_items(given, "items")
    if input_items.system_text(items) is not None:
        reason = "system and developer messages are not items of a conversation; send them as instructions"
        raise ApiError(400, "unsupported_content", reason, "items")
    return items


async def _write(context: ApiContext, work: Callable[[Transaction], W], session_id: str) -> W:
    try:
        return await context.engine.actions.write(work, session_id)
    except Invalid as e:
        raise ApiError(400, "invalid_request", str(e), "items") from e


async def _find(request: Request) -> Session:
    """Find the session of a conversation: by its id, or by the session's. Raises ApiError."""
    given = str(request.path_params["id"])
    session_id = conversation_session(given) or given

    def read(tx: Transaction) -> Session | None:
        try:
            session = sessions.get(tx, session_id)
        except NotFound:
            return None
        return session if session.summary.trashed_at is None else None

    found = await get_context(request).database.read(read) if re.fullmatch(r"[\w-]{1,80}", session_id) else None
    if found is None:
        raise ApiError(404, "conversation_not_found", f"conversation {given[:80]!r} not found", "conversation_id")
    return found


async def _items(request: Request, session: Session) -> list[ListedItem]:
    def read(tx: Transaction) -> list[ListedItem]:
        return list_items(session.id, log.read_complete(tx, sessions.get(tx, session.id)))

    return await get_context(request).database.read(read)


async def _item(request: Request, session: Session) -> ListedItem:
    id_ = str(request.path_params["item_id"])
    for item in await _items(request, session):
        if item.id == id_:
            return item
    raise ApiError(404, "item_not_found", f"item {id_[:80]!r} not found in this conversation", "item_id")


def _check_includes(request: Request) -> None:
    for name in request.query_params.getlist("include") + request.query_params.getlist("include[]"):
        if name not in ACCEPTED_INCLUDES:
            raise ApiError(400, "unsupported_parameter", f"include: {name[:80]} is not supported", "include")


def _conversation(session: Session, metadata: dict[str, str]) -> Response:
    about = {"id": conversation_id(session.id), "object": "conversation", "metadata": metadata}
    return json_response({**about, "created_at": session.summary.created_at // 1_000_000}, _headers(session))


def _headers(session: Session) -> dict[str, str]:
    return {"x-session-id": session.id}
