"""Pages about messaging platforms: how they are connected, who may talk, and what could not be dealt with or delivered."""

import json

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import pages
from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.forms import done, fields, needed
from holdfast.engine.janitor import first_look
from holdfast.model.errors import NotFound
from holdfast.store import inbox, outbox, people, platforms, workers
from holdfast.store.database import Transaction
from holdfast.store.inbox import Letter
from holdfast.store.outbox import Delivery

LISTED = 200
SHOWN = 2_000


class Gateway(msgspec.Struct, frozen=True):
    """A platform, as it is set up and as it is."""

    name: str
    configured: bool
    state: str
    since: int | None
    worker_id: str | None
    error: str
    error_at: int | None
    received: int
    waiting: int
    dead: int
    to_send: int
    trouble: int


async def gateways(request: Request) -> Response:
    desk = of(request)
    found, known = await desk.database.read(lambda tx: (_gateways(tx, desk), people.every(tx)))
    home = desk.settings.gateway.home_channel or ""
    return pages.page(request, "gateways.html", gateways=found, people=known, home=home, now=desk.now)


def _gateways(tx: Transaction, desk: Desk) -> list[Gateway]:
    known = {one.name: one for one in platforms.every(tx)}
    arriving = {(name, state): count for name, state, count in inbox.depths(tx)}
    leaving = {(name, state): count for name, state, count in outbox.depths(tx)}
    found = []
    for name in sorted({*known, *desk.settings.gateway.platforms}):
        one = known.get(name)
        worker = workers.get(tx, one.worker_id) if one is not None and one.worker_id else None
        gone = worker is not None and first_look(worker, desk.ours).state in ("dead", "ended")
        found.append(
            Gateway(
                name=name,
                configured=name in desk.settings.gateway.platforms,
                state="off" if one is None or gone else one.state,
                since=one.since if one else None,
                worker_id=one.worker_id if one and not gone else None,
                error=one.error if one else "",
                error_at=one.error_at if one else None,
                received=one.received if one else 0,
                waiting=sum(arriving.get((name, state), 0) for state in ("waiting", "working")),
                dead=arriving.get((name, "dead"), 0),
                to_send=sum(leaving.get((name, state), 0) for state in ("waiting", "sending")),
                trouble=sum(leaving.get((name, state), 0) for state in ("failed", "unknown")),
            )
        )
    return found


async def pair(request: Request) -> Response:
    desk = of(request)
    person = await desk.database.write(people.let_in, needed(request, "code").strip(), at=desk.now)
    words = f"{person.name or person.person} may talk on {person.platform} from now on"
    return done(request, words, "/ui/gateways")


async def unpair(request: Request) -> Response:
    desk = of(request)
    await desk.database.write(people.turn_out, needed(request, "platform"), needed(request, "person"))
    return done(request, "They may no longer talk there", "/ui/gateways")


async def dead(request: Request) -> Response:
    desk = of(request)
    letters, deliveries = await desk.database.read(lambda tx: (inbox.dead(tx, LISTED), outbox.trouble(tx, LISTED)))
    arrived = [(one, _payload(one)) for one in letters]
    return pages.page(request, "dead.html", letters=arrived, deliveries=deliveries, limit=LISTED, now=desk.now)


def _payload(letter: Letter) -> str:
    try:
        text = json.dumps(json.loads(letter.payload), ensure_ascii=False, indent=2) if letter.payload else ""
    except (ValueError, RecursionError):
        text = letter.payload
    return text[:SHOWN]


async def replay(request: Request) -> Response:
    """Try one of them again, or all that are listed."""
    desk, ref = of(request), fields(request).get("id", "")

    def work(tx: Transaction) -> int:
        every: list[Letter | Delivery] = [*inbox.dead(tx, LISTED), *outbox.trouble(tx, LISTED)]
        chosen = [one for one in every if ref in ("", one.id)]
        for one in chosen:
            if isinstance(one, Letter):
                inbox.replay(tx, one, at=desk.now)
            else:
                outbox.replay(tx, one, at=desk.now)
        return len(chosen)

    count = await desk.database.write(work)
    if not count:
        raise NotFound("there is no such dead letter any more")
    return done(request, f"{count} tried again", "/ui/dead")
