"""Find responses and items in the log by their ids."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.api.context import ApiContext
from holdfast.api.errors import ApiError
from holdfast.api.openai.responses import ids as response_ids
from holdfast.api.openai.responses import input_items
from holdfast.api.openai.responses.document import ResponseFacts
from holdfast.api.openai.responses.events import ResponseEvents, replay_events
from holdfast.api.openai.responses.input_items import Item, ItemReference
from holdfast.api.openai.responses.request import ParsedResponsesRequest, with_messages
from holdfast.engine.admission.client_request import ContinueFrom
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.event import ToolEnded, UserSaid
from holdfast.model.message import Content, File, Image, Text, ToolCall
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import sessions, turn_lookup

Object = dict[str, object]


@dataclass(frozen=True)
class StoredResponse:
    """A response found in the log."""

    session: Session
    position: turn_lookup.TurnPosition
    about: ResponseFacts
    entries: Sequence[Entry]

    def events(self) -> ResponseEvents:
        events = replay_events(self.about, self.entries)
        if self.position.dropped is not None:
            events.take(Entry(0, 0, self.position.dropped))
        return events

    def document(self) -> Object:
        document = self.events().document()
        return document | {"status": "queued"} if self.position.is_open and not self.position.first else document


async def find_response(
    context: ApiContext, id_: str, param: str | None = None, unstored: Collection[str] = ()
) -> StoredResponse:
    """Find a response. Raises ApiError if it does not exist, was deleted, or was not to be stored and is not in `unstored`."""
    parsed = response_ids.parse_id(id_)
    if parsed is None or parsed.kind != response_ids.RESPONSE_KIND or parsed.number is not None:
        raise _missing(id_, param)
    known = await context.database.read(_load, parsed.after)
    if known is None or not (known.about.is_stored or id_ in unstored):
        raise _missing(id_, param)
    return known


def _missing(id_: str, param: str | None) -> ApiError:
    return ApiError(404, "response_not_found", f"response {id_[:80]!r} not found", param)


def _load(tx: Transaction, after: ContinueFrom) -> StoredResponse | None:
    """Load a turn that was requested through this API."""
    try:
        session = sessions.get(tx, after.session_id)
    except NotFound:
        return None
    position = turn_lookup.find(tx, session.id, after.turn_id)
    if session.summary.trashed_at is not None or position is None or not position.terms.echo:
        return None
    if turn_lookup.is_deleted(tx, session.id, after.turn_id, position):
        return None
    about = ResponseFacts(session.id, after.turn_id, position.turn_id, position.terms.model, position.terms)
    return StoredResponse(session, position, about, turn_lookup.read_entries(tx, session.id, position))


async def resolve_references(
    context: ApiContext, wanted: ParsedResponsesRequest
) -> tuple[ParsedResponsesRequest, str | None]:
    """Resolve item references. Returns the request with all messages, and the session of the last reference, if any."""
    messages, session_id = await resolve_items(context, wanted.items)
    return with_messages(wanted, messages), session_id


async def resolve_items(context: ApiContext, items: Sequence[Item]) -> tuple[tuple[ClientMessage, ...], str | None]:
    """The messages of the items, and the session of the last reference, if any. Raises ApiError for an unknown reference."""
    references = [item for item in items if isinstance(item, ItemReference)]
    found = await context.database.read(_resolve, references) if references else {}
    session_id = None
    for reference in references:
        parsed = response_ids.parse_id(reference.id)
        if parsed is None or reference.id not in found:
            reason = f"{reference.where}: item {reference.id[:80]!r} not found; send it in full"
            raise ApiError(400, "invalid_request", reason, f"{reference.where}.id")
        session_id = parsed.after.session_id
    return input_items.to_messages(items, lambda one: found[one.id]), session_id


def _resolve(tx: Transaction, references: Sequence[ItemReference]) -> dict[str, list[ClientMessage]]:
    """Load the messages of the known items by id."""
    found: dict[str, list[ClientMessage]] = {}
    loaded: dict[ContinueFrom, StoredResponse | None] = {}
    for reference in references:
        parsed = response_ids.parse_id(reference.id)
        if parsed is None:
            continue
        if parsed.kind == "rs":
            found[reference.id] = []  # the log has the reasoning
            continue
        if parsed.after not in loaded:
            loaded[parsed.after] = _load(tx, parsed.after)
        known = loaded[parsed.after]
        if known is not None:
            theirs = [*known.events().output, *list_input_items(known)]
            found |= {str(item["id"]): [_as_given(item)] for item in theirs if item["id"] == reference.id}
    return found


def _as_given(item: Object) -> ClientMessage:
    read = input_items.parse_items([{key: value for key, value in item.items() if key != "id"}])[0]
    assert isinstance(read, ClientMessage), "only messages, calls and results have such ids"
    return read


def list_input_items(known: StoredResponse) -> list[Object]:
    """List the client's input as items: messages and tool results."""
    said: list[tuple[str, Object]] = []
    if known.position.dropped is not None:
        said.append(("msg", input_message(known.position.dropped.parts)))
    for entry in known.entries:
        event = entry.event
        if getattr(event, "turn_id", None) != known.about.within:
            continue
        if isinstance(event, UserSaid):
            said.append(("msg", input_message(event.parts)))
        elif isinstance(event, ToolEnded) and _is_client_result(known, event):
            said.append(("fco", result_item(event)))
    ids = known.about.session_id, known.about.turn_id
    return [{"id": response_ids.item_id(kind, *ids, n, given=True), **item} for n, (kind, item) in enumerate(said)]


def _is_client_result(known: StoredResponse, ended: ToolEnded) -> bool:
    """Return whether a result came with the request: then this turn did not make the call."""
    made = {
        part.id
        for entry in known.entries
        for part in getattr(entry.event, "parts", ())
        if isinstance(part, ToolCall) and getattr(entry.event, "turn_id", None) == known.about.within
    }
    return ended.call_id not in made


def result_item(event: ToolEnded) -> Object:
    """The item of a tool result, without its id."""
    output = [_part(part) for part in event.parts]
    return {"type": "function_call_output", "call_id": event.call_id, "output": output, "status": "completed"}


def input_message(parts: Sequence[Content]) -> Object:
    """The item of a user's message, without its id."""
    return {"type": "message", "role": "user", "status": "completed", "content": [_part(part) for part in parts]}


def _part(part: Content) -> Object:
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image():
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        case File():
            return {"type": "input_file", "file_data": part.url, "filename": part.name or None}
