"""A request on its way to the engine: who sent it, what it names, and what it may ask for. Shared by all routes that begin turns."""

import hashlib

from starlette.requests import Request

from holdfast.api import naming, shapes
from holdfast.api.errors import Refusal
from holdfast.api.house import House
from holdfast.api.naming import Named
from holdfast.api.shapes import Asked
from holdfast.engine.arrive import Arrival
from holdfast.engine.engine import Received
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.ids import SESSION, TURN
from holdfast.providers import choose


def arrival(house: House, request: Request, asked: Asked, named: Named) -> Arrival:
    """The request as the engine takes it in. Raises a Refusal for a model or a parameter that is not there."""
    model = house.listing.resolve(asked.model)
    shapes.refuse_unknown_to(choose.parse(model or house.listing.default).provider, asked.terms, asked.spelled)
    ids = house.engine.ground.ids
    return Arrival(
        turn_id=ids.make(TURN),
        new_id=ids.make(SESSION),
        messages=asked.messages,
        caller=caller(asked.who),
        ref=named.ref,
        channel=named.channel,
        system=asked.system,
        model=model,
        default_model=house.listing.default,
        terms=asked.terms,
        mode=naming.busy(request.headers),
        key=naming.key(request.headers),
        request=asked.digest,
        workdir=str(house.workdir),
    )


def caller(who: str) -> str:
    """Who may be matched to a session by its history alone: whoever has the key and says it is the same user."""
    return f"api:{hashlib.sha256(who.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}" if who else "api:"


async def receive(house: House, arriving: Arrival, *, kept: bool = False, param: str = "messages") -> Received:
    """Take the request in: it is durable from then on. Close what is returned.

    `kept` is for words that are told only once they are safe; `param` is where the client has put its messages.
    """
    try:
        return await house.engine.receive(arriving, kept=kept)
    except NotFound as e:
        raise Refusal(404, "session_not_found", str(e)) from e
    except Invalid as e:
        raise Refusal(400, "invalid_request", str(e), param) from e
