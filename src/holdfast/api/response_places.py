"""Responses and items by their ids: what is in the log of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.api import items, response_ids
from holdfast.api.errors import Refusal
from holdfast.api.house import House
from holdfast.api.items import Reference
from holdfast.api.narration import Narration, folded
from holdfast.api.response_document import About
from holdfast.api.response_shapes import Wanted, resolved
from holdfast.engine.arrive import After
from holdfast.engine.branches import Given
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.event import ToolEnded, UserSaid
from holdfast.model.message import Content, File, Image, Text, ToolCall
from holdfast.model.session import Session
from holdfast.store import sessions, turns
from holdfast.store.database import Transaction

Object = dict[str, object]


@dataclass(frozen=True)
class Known:
    """A response that is there."""

    session: Session
    place: turns.Place
    about: About
    entries: Sequence[Entry]

    def narration(self) -> Narration:
        narration = folded(self.about, self.entries)
        if self.place.dropped is not None:
            narration.take(Entry(0, 0, self.place.dropped))
        return narration

    def document(self) -> Object:
        document = self.narration().document()
        return document | {"status": "queued"} if self.place.is_open and not self.place.first else document


async def find(house: House, id_: str, param: str | None = None) -> Known:
    """The response of that id. Raises a Refusal for one that is not there, was deleted, or was not to be stored."""
    meant = response_ids.read(id_)
    if meant is None or meant.kind != response_ids.RESPONSE or meant.number is not None:
        raise _missing(id_, param)
    known = await house.database.read(_look, meant.after)
    if known is None or not known.about.is_stored:
        raise _missing(id_, param)
    return known


def _missing(id_: str, param: str | None) -> Refusal:
    return Refusal(404, "response_not_found", f"there is no response {id_[:80]!r}", param)


def _look(tx: Transaction, after: After) -> Known | None:
    """What is known of a turn that a client of this API asked for."""
    try:
        session = sessions.get(tx, after.session_id)
    except NotFound:
        return None
    place = turns.find(tx, session.id, after.turn_id)
    if session.summary.trashed_at is not None or place is None or not place.terms.echo:
        return None
    if turns.is_deleted(tx, session.id, after.turn_id, place):
        return None
    about = About(session.id, after.turn_id, place.turn_id, place.terms.model, place.terms)
    return Known(session, place, about, turns.entries(tx, session.id, place))


async def with_messages(house: House, wanted: Wanted) -> tuple[Wanted, str | None]:
    """The request with all its messages, and the session that the last of its references leads to, if there is one."""
    references = [item for item in wanted.items if isinstance(item, Reference)]
    found = await house.database.read(_resolve, references) if references else {}
    session_id = None
    for reference in references:
        meant = response_ids.read(reference.id)
        if meant is None or reference.id not in found:
            told = f"{reference.where}: there is no item {reference.id[:80]!r}; send it in full"
            raise Refusal(400, "invalid_request", told, f"{reference.where}.id")
        session_id = meant.after.session_id
    return resolved(wanted, items.messages(wanted.items, lambda one: found[one.id])), session_id


def _resolve(tx: Transaction, references: Sequence[Reference]) -> dict[str, list[Given]]:
    """The messages of those items that are known, by their ids."""
    found: dict[str, list[Given]] = {}
    looked: dict[After, Known | None] = {}
    for reference in references:
        meant = response_ids.read(reference.id)
        if meant is None:
            continue
        if meant.kind == "rs":
            found[reference.id] = []  # the log has the reasoning
            continue
        if meant.after not in looked:
            looked[meant.after] = _look(tx, meant.after)
        known = looked[meant.after]
        if known is not None:
            theirs = [*known.narration().output, *given_items(known)]
            found |= {str(item["id"]): [_as_given(item)] for item in theirs if item["id"] == reference.id}
    return found


def _as_given(item: Object) -> Given:
    read = items.read([{key: value for key, value in item.items() if key != "id"}])[0]
    assert isinstance(read, Given), "only messages, calls and results have such ids"
    return read


def given_items(known: Known) -> list[Object]:
    """What the client gave, as items: words and results of its tools."""
    said: list[tuple[str, Object]] = []
    if known.place.dropped is not None:
        said.append(("msg", _message(known.place.dropped.parts)))
    for entry in known.entries:
        event = entry.event
        if getattr(event, "turn_id", None) != known.about.within:
            continue
        if isinstance(event, UserSaid):
            said.append(("msg", _message(event.parts)))
        elif isinstance(event, ToolEnded) and _is_the_clients(known, event):
            output = [_part(part) for part in event.parts]
            about: Object = {"type": "function_call_output", "call_id": event.call_id, "output": output}
            said.append(("fco", {**about, "status": "completed"}))
    ids = known.about.session_id, known.about.turn_id
    return [{"id": response_ids.item(kind, *ids, n, given=True), **item} for n, (kind, item) in enumerate(said)]


def _is_the_clients(known: Known, ended: ToolEnded) -> bool:
    """Whether a result came with the request: then the call was not made in this turn."""
    made = {
        part.id
        for entry in known.entries
        for part in getattr(entry.event, "parts", ())
        if isinstance(part, ToolCall) and getattr(entry.event, "turn_id", None) == known.about.within
    }
    return ended.call_id not in made


def _message(parts: Sequence[Content]) -> Object:
    return {"type": "message", "role": "user", "status": "completed", "content": [_part(part) for part in parts]}


def _part(part: Content) -> Object:
    match part:
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image():
            return {"type": "input_image", "image_url": part.url, "detail": part.detail or "auto"}
        case File():
            return {"type": "input_file", "file_data": part.url, "filename": part.name or None}
