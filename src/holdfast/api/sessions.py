"""Sessions: listed, begun, changed, read, ended and taken up again."""

from typing import Any

from holdfast.api import asked, naming
from holdfast.api.doors import Call, Said, session_of
from holdfast.engine.opening import Opening
from holdfast.interop import shapes
from holdfast.model.event import ModelChanged
from holdfast.model.ids import SESSION
from holdfast.model.session import Session, as_message
from holdfast.store import log
from holdfast.store import sessions as store
from holdfast.store.database import Transaction

Json = dict[str, Any]
ASKED = "asked for through the API"


async def list_(call: Call) -> Json:
    """Sessions, newest activity first."""
    query: asked.ListAsked = call.query
    filters = store.Filters(
        source=query.source,
        channel=query.channel,
        model=query.model,
        state=query.state,
        pinned=None if query.pinned is None else int(query.pinned),
        trashed=int(query.trash),
        sides=int(query.sides),
    )
    page = await call.house.database.read(store.list_page, filters, limit=query.limit, cursor=query.cursor)
    return {"sessions": [shapes.session(one) for one in page.sessions], "next": page.next}


async def create(call: Call) -> Said:
    """Begin a session, or get the one of that key."""
    body: asked.NewSession = call.body
    channel = None if body.key is None else naming.CHANNEL + naming.text(body.key, "key", naming.MAX_NAME)
    opening = Opening(
        channel=channel,
        source="api",
        title=body.title,
        model=None if body.model is None else call.house.listing.resolve(body.model),
        system=body.system,
        workdir=call.house.workdir,
    )
    opened = await call.house.engine.open(opening)
    place = {"location": f"/v1/sessions/{opened.session.id}"}
    return Said(shapes.session(await _now(call, opened.session)), 201 if opened.new else 200, place)


async def _now(call: Call, session: Session) -> Session:
    """The session with what only the store knows: the heartbeat of its worker."""
    return await call.house.database.read(store.get, session.id)


async def get(call: Call) -> Json:
    """One session."""
    return shapes.session(await session_of(call))


async def patch(call: Call) -> Json:
    """Change the title, the model or the mark that keeps it from being pruned."""
    body: asked.Change = call.body
    session, at = await session_of(call), call.house.engine.ground.clock.now()
    model = None if body.model is None else (call.house.listing.resolve(body.model) or call.house.listing.default)

    def work(tx: Transaction) -> Session:
        changed = store.get(tx, session.id)
        if model is not None and model != changed.summary.model:
            changed = log.append_unheld(tx, session.id, [ModelChanged(model=model)], at=at)
        if body.title is not None:
            changed = store.rename(tx, session.id, body.title, at=at)
        if body.pinned is not None:
            changed = store.pin(tx, session.id, pinned=body.pinned, at=at)
        return store.get(tx, session.id)

    return shapes.session(await call.house.engine.change(session.id, work))


async def delete(call: Call) -> Json:
    """Put the session into the trash, from where it can be restored."""
    session, at = await session_of(call), call.house.engine.ground.clock.now()

    def work(tx: Transaction) -> Session:
        return store.trash(tx, session.id, at=at, reason=ASKED)

    return shapes.session(await call.house.engine.change(session.id, work))


async def restore(call: Call) -> Json:
    """Take the session out of the trash."""
    session, at = await session_of(call), call.house.engine.ground.clock.now()
    await call.house.database.write(store.restore, session.id, at=at)
    return shapes.session(await _now(call, session))


async def end(call: Call) -> Json:
    """End the session; it keeps all it holds."""
    session, at = await session_of(call, trashed=False), call.house.engine.ground.clock.now()

    def work(tx: Transaction) -> Session:
        return store.end(tx, session.id, "user", at=at, detail=ASKED)

    return shapes.session(await call.house.engine.change(session.id, work))


async def reopen(call: Call) -> Json:
    """Take an ended or quarantined session up again."""
    session, at = await session_of(call, trashed=False), call.house.engine.ground.clock.now()

    def work(tx: Transaction) -> Session:
        return store.reopen(tx, session.id, at=at, reason=ASKED)

    return shapes.session(await call.house.engine.change(session.id, work))


async def fork(call: Call) -> Said:
    """Begin a new session with what was said in this one, or a part of it."""
    body: asked.ForkAsked = call.body
    parent, ground = await session_of(call, trashed=False), call.house.engine.ground
    new_id, at = ground.ids.make(SESSION), ground.clock.now()

    def work(tx: Transaction) -> Session:
        store.fork(tx, parent.id, new_id, at=at, at_seq=body.at, source="api")
        if body.title is not None:
            store.rename(tx, new_id, body.title, at=at)
        return store.get(tx, new_id)

    forked = await call.house.database.write(work)
    return Said(shapes.session(forked), 201, {"location": f"/v1/sessions/{forked.id}"})


async def interrupt(call: Call) -> Json:
    """Ask the running turn to end; what was said stays."""
    session = await session_of(call, trashed=False)
    return {"session_id": session.id, "interrupted": await call.house.engine.interrupt(session.id)}


async def messages(call: Call) -> Json:
    """What was said, a page at a time, each event proved by its hash."""
    query: asked.PageAsked = call.query
    session = await session_of(call)

    def work(tx: Transaction) -> Json:
        current = store.get(tx, session.id)
        entries = log.read_page(tx, current, after=query.after, limit=query.limit)
        said = [shapes.message(one) for entry in entries if (one := as_message(entry)) is not None]
        last = entries[-1].seq if entries else current.seq
        return {"session_id": current.id, "messages": said, "next": last if last < current.seq else None}

    return await call.house.database.read(work)
