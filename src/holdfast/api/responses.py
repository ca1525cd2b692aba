"""`/v1/responses`: a response is a turn. It can be streamed, left in the background, read again, cancelled and gone on from."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast import eventstream
from holdfast.api import intake, naming, response_places, response_shapes, stream
from holdfast.api.chat import LARGE
from holdfast.api.errors import Refusal, translate
from holdfast.api.house import House, of
from holdfast.api.naming import Named
from holdfast.api.narration import Narration
from holdfast.api.response_document import About
from holdfast.api.response_places import Known
from holdfast.api.response_shapes import INCLUDED, Wanted
from holdfast.api.telling import Telling
from holdfast.engine.arrive import After, Arrival, Arrived
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError
from holdfast.model.event import InputDropped, ResponseDeleted
from holdfast.model.ids import SESSION
from holdfast.store import log

CANCEL_SECONDS = 10.0
"""How long a cancelled turn is waited for; it ends in any case."""
MAX_ITEMS = 100
LAST = 2**53


async def create(request: Request) -> Response:
    """Take the request in; it is durable from then on, whatever becomes of the client. Then tell of its turn."""
    house = of(request)
    body = await request.body()
    parse = response_shapes.parse
    wanted = await asyncio.to_thread(parse, body) if len(body) > LARGE else parse(body)
    wanted, referred = await response_places.with_messages(house, wanted)
    named = _named(house, request, wanted, referred)
    after = await _after(house, wanted)
    arrival = msgspec.structs.replace(intake.arrival(house, request, wanted, named), after=after)
    received = await intake.receive(house, arrival, kept=wanted.stream, param="input")
    answer = Answer(
        Telling(house, received, keyed=bool(arrival.key), echo=named.echo), _about(arrival, received.arrived)
    )
    if wanted.stream:
        return eventstream.EventStream(answer.pieces(), answer.telling.headers())
    return answer.at_once() if wanted.background else await answer.whole()


def _named(house: House, request: Request, wanted: Wanted, referred: str | None) -> Named:
    """Which session is meant: what the body says goes before what headers say, and those before what items refer to.

    Whoever goes on from a response has said it all: names are for other requests.
    """
    named = naming.named(request.headers, house.settings.api.session_headers, wanted.cache_key)
    if wanted.previous is not None:
        return Named(echo=named.echo)
    if wanted.conversation is not None:
        value = naming.text(wanted.conversation, "conversation", naming.MAX_NAME)
        channel = None if value.startswith(SESSION) else naming.CHANNEL + value
        return Named(value, channel, named.echo)
    if named.ref is None and named.channel is None:
        return Named(referred, None, named.echo)
    return named


async def _after(house: House, wanted: Wanted) -> After | None:
    """The turn to go on from."""
    if wanted.previous is None:
        return None
    known = await response_places.find(house, wanted.previous, "previous_response_id")
    return After(known.session.id, known.about.turn_id)


def _about(arrival: Arrival, arrived: Arrived) -> About:
    admission = arrived.admission
    return About(admission.session.id, admission.turn_id, admission.turn_id, arrived.model, arrival.terms)


class Answer:
    """A turn in the words of the Responses API."""

    def __init__(self, telling: Telling, about: About, after: int = -1) -> None:
        self.telling = telling
        self.narration = Narration(about, after)

    async def whole(self) -> Response:
        await self.telling.hear_all(self.narration.take)
        headers = self.telling.headers() | {"x-session-seq": str(self.telling.reply.seq)}
        return _json(self._document(self.narration.document()), headers)

    def at_once(self) -> Response:
        """The response as it is now. Its turn goes on."""
        self.telling.received.close()
        admission = self.telling.received.arrived.admission
        status = "in_progress" if admission.began or admission.repeated else "queued"
        return _json(self.narration.document() | {"status": status}, self.telling.headers())

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The stream. It ends with the whole response, or with an error if its turn could not be followed to the end."""
        telling = self.telling
        try:
            for told in self.narration.begin():
                yield self._event(told)
            beats = eventstream.with_heartbeats(telling.received.follow(), telling.house.heartbeat_seconds)
            async with aclosing(beats) as items:
                async for item in items:
                    if item is None:
                        yield stream.HEARTBEAT
                        continue
                    telling.reply.add(item)
                    for told in self.narration.add(item):
                        yield self._event(told)
        except HoldfastError as e:
            yield self._error(translate(e))
        finally:
            telling.received.close()

    def _event(self, told: dict[str, object]) -> bytes:
        document = told.get("response")
        if isinstance(document, dict) and self.narration.ended is not None:
            told["response"] = self._document(document)
        return stream.event(told, name=str(told["type"]))

    def _document(self, document: Mapping[str, object]) -> dict[str, object]:
        return {**document, "holdfast": self.telling.about()}

    def _error(self, refusal: Refusal) -> bytes:
        """It has the number of the last event, so that one can read on behind that."""
        number = max(self.narration.number, 0)
        told: dict[str, object] = {"type": "error", "sequence_number": number, "code": refusal.code}
        return stream.event({**told, "message": refusal.message, "param": refusal.param}, name="error")


async def retrieve(request: Request) -> Response:
    """A response as it is now, or the stream of it from an event on."""
    house = of(request)
    wants_stream, after = _retrieval(request)
    known = await response_places.find(house, request.path_params["id"])
    if not wants_stream:
        return _json(known.document(), _headers(known))
    received = await house.engine.join(known.session, known.place)
    answer = Answer(Telling(house, received, keyed=True, echo=None), known.about, after)
    dropped = known.place.dropped
    return eventstream.EventStream(
        answer.pieces() if dropped is None else _never_begun(answer, dropped), _headers(known)
    )


async def _never_begun(answer: Answer, dropped: InputDropped) -> AsyncGenerator[bytes, None]:
    """The stream of a response that never began."""
    answer.telling.received.close()
    gone = Entry(0, 0, dropped)
    for told in [*answer.narration.begin(), *answer.narration.add(gone)]:
        yield stream.event(told, name=str(told["type"]))


def _retrieval(request: Request) -> tuple[bool, int]:
    """Whether a stream is asked for, and the number behind which it is to begin."""
    asked = dict(request.query_params)
    for name in request.query_params.getlist("include") + request.query_params.getlist("include[]"):
        if name not in INCLUDED:
            raise Refusal(400, "unsupported_parameter", f"include: {name} is not supported here", "include")
    _refuse_unknown(asked, ("stream", "starting_after", "include", "include[]", "include_obfuscation"))
    if asked.get("include_obfuscation", "false") != "false":
        told = "the parameter include_obfuscation is not supported here"
        raise Refusal(400, "unsupported_parameter", told, "include_obfuscation")
    if asked.get("stream", "false") not in ("true", "false"):
        raise Refusal(400, "invalid_value", "stream must be true or false", "stream")
    wants_stream = asked.get("stream") == "true"
    if "starting_after" in asked and not wants_stream:
        raise Refusal(400, "invalid_value", "starting_after is for streams", "starting_after")
    return wants_stream, _number(asked, "starting_after", -1, 0, LAST)


def _refuse_unknown(asked: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in asked:
        if name not in known:
            raise Refusal(400, "unsupported_parameter", f"the parameter {name[:80]} is not supported here", name[:80])


def _number(asked: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    if name not in asked:
        return default
    text = asked[name]
    if not (text.isascii() and text.isdigit()) or not least <= int(text[:20]) <= most:
        raise Refusal(400, "invalid_value", f"{name} must be a number from {least} to {most}", name)
    return int(text)


def _headers(known: Known) -> dict[str, str]:
    epoch = str(known.session.summary.epoch)
    return {"x-session-id": known.session.id, "x-session-epoch": epoch, "x-turn-id": known.about.turn_id}


async def delete(request: Request) -> Response:
    """Have the response no longer found by its id. What was said stays in its session."""
    house = of(request)
    known = await response_places.find(house, request.path_params["id"])
    gone = ResponseDeleted(turn_id=known.about.turn_id)
    await house.database.write(log.annotate, known.session.id, gone, at=house.engine.ground.clock.now())
    return _json({"id": known.about.id, "object": "response", "deleted": True}, _headers(known))


async def cancel(request: Request) -> Response:
    """End its turn, or take its words back if they still wait. One that is over stays as it is."""
    house = of(request)
    known = await response_places.find(house, request.path_params["id"])
    if known.place.is_open and await house.engine.withdraw(known.session.id, known.place.turn_id):
        await _ended(house, known)
        known = await response_places.find(house, known.about.id)
    return _json(known.document(), _headers(known))


async def _ended(house: House, known: Known) -> None:
    """Wait until the turn is over, but not for ever."""
    received = await house.engine.join(known.session, known.place)
    try:
        async with asyncio.timeout(CANCEL_SECONDS), aclosing(received.follow()) as items:
            async for _ in items:
                pass
    except TimeoutError:
        return  # the response says that it is still in progress
    finally:
        received.close()


async def input_items(request: Request) -> Response:
    """What the client gave, the newest first unless it asks otherwise, page by page."""
    house = of(request)
    asked = dict(request.query_params)
    _refuse_unknown(asked, ("limit", "order", "after"))
    if asked.get("order", "desc") not in ("asc", "desc"):
        raise Refusal(400, "invalid_value", "order must be asc or desc", "order")
    limit = _number(asked, "limit", 20, 1, MAX_ITEMS)
    known = await response_places.find(house, request.path_params["id"])
    found = response_places.given_items(known)
    if asked.get("order", "desc") == "desc":
        found.reverse()
    if "after" in asked:
        place = next((n for n, item in enumerate(found) if item["id"] == asked["after"]), None)
        if place is None:
            raise Refusal(400, "invalid_value", "after must be the id of one of the items", "after")
        found = found[place + 1 :]
    page = found[:limit]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return _json({"object": "list", "data": page, **ends, "has_more": len(found) > limit}, _headers(known))


def _json(document: Mapping[str, object], headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(document), 200, headers, media_type="application/json")
