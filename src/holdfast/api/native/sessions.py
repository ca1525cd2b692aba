"""Sessions: list, create, change, read, end, reopen, trash and restore."""

from holdfast.api import headers
from holdfast.api.context import API_USER
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, EndpointReply, load_session
from holdfast.api.native.response_models import InterruptResponse, MessageListResponse
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.interop.documents.sessions import MessageItem, SessionDetailResponse, SessionListResponse, SessionResponse
from holdfast.model.session import Session, as_message
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, goals, log, plans, session_list
from holdfast.store.repos import sessions as store

REASON = "requested through the API"


async def list_(call: EndpointCall) -> SessionListResponse:
    """List sessions, newest activity first."""
    query: request_models.ListSessionsRequest = call.query
    filters = session_list.SessionFilters(
        source=query.source,
        channel=query.channel,
        model=query.model,
        state=query.state,
        pinned=None if query.pinned is None else int(query.pinned),
        trashed=int(query.trash),
        sides=int(query.sides),
        children=int(query.children),
    )

    def work(tx: Transaction) -> SessionListResponse:
        page = session_list.list_page(tx, filters, limit=query.limit, cursor=query.cursor)
        return SessionListResponse.from_page(page, delegations.map_child_ids(tx, page.sessions))

    return await call.context.database.read(work)


async def create(call: EndpointCall) -> EndpointReply:
    """Create a session, or get the one with that key."""
    body: request_models.NewSessionRequest = call.body
    channel = (
        None if body.key is None else headers.CHANNEL_PREFIX + headers.validate_text(body.key, "key", headers.MAX_NAME)
    )
    call.context.settings.terminal.check(body.terminal, "terminal")
    opening = OpenRequest(
        channel=channel,
        source="api",
        title=body.title,
        model=None if body.model is None else call.context.models.resolve(body.model),
        system=body.system,
        terminal=body.terminal or "",
        mode=body.mode,
        by=API_USER,
    )
    opened = await call.context.engine.open(opening)
    location = {"location": f"/v1/sessions/{opened.session.id}"}
    return EndpointReply(await _describe(call, opened.session), 201 if opened.new else 200, location)


async def _describe(call: EndpointCall, session: Session) -> SessionResponse:
    """Read the session again, with its children and the heartbeat of its worker, which only the store knows."""

    def work(tx: Transaction) -> SessionResponse:
        return SessionResponse.from_session(store.get(tx, session.id), delegations.list_child_ids(tx, session.id))

    return await call.context.database.read(work)


async def get(call: EndpointCall) -> SessionDetailResponse:
    """Get a session, its children, its plan and its goal."""
    session = await load_session(call)

    def work(tx: Transaction) -> SessionDetailResponse:
        children = delegations.list_child_ids(tx, session.id)
        goal = goals.get(tx, session.id) if session.summary.goal else None
        return SessionDetailResponse.describe(session, plans.current(tx, session.id), children, goal)

    return await call.context.database.read(work)


async def patch(call: EndpointCall) -> SessionResponse:
    """Change the title, the model, the permission mode or the pin, which protects it from pruning."""
    body: request_models.ChangeSessionRequest = call.body
    session, listing = await load_session(call), call.context.models
    model = None if body.model is None else (listing.resolve(body.model) or listing.default)
    changed = await call.context.engine.actions.change(
        session.id, title=body.title, model=model, pinned=body.pinned, mode=body.mode, by=API_USER
    )
    return await _describe(call, changed)


async def delete(call: EndpointCall) -> SessionResponse:
    """Move the session to the trash, from which it can be restored."""
    session = await load_session(call)
    return await _describe(call, await call.context.engine.actions.trash(session.id, reason=REASON))


async def restore(call: EndpointCall) -> SessionResponse:
    """Restore the session from the trash."""
    session = await load_session(call)
    await call.context.engine.actions.restore(session.id)
    return await _describe(call, session)


async def end(call: EndpointCall) -> SessionResponse:
    """End the session; its content stays."""
    session = await load_session(call, trashed=False)
    return await _describe(call, await call.context.engine.actions.end(session.id, detail=REASON))


async def reopen(call: EndpointCall) -> SessionResponse:
    """Reopen an ended or quarantined session."""
    session = await load_session(call, trashed=False)
    return await _describe(call, await call.context.engine.actions.reopen(session.id, reason=REASON))


async def fork(call: EndpointCall) -> EndpointReply:
    """Create a new session with the messages of this one, or the first of them."""
    body: request_models.ForkRequest = call.body
    parent = await load_session(call, trashed=False)
    forked = await call.context.engine.actions.fork(parent.id, at_seq=body.at, source="api", title=body.title)
    return EndpointReply(SessionResponse.from_session(forked), 201, {"location": f"/v1/sessions/{forked.id}"})


async def interrupt(call: EndpointCall) -> InterruptResponse:
    """Interrupt the running turn; its messages stay."""
    session = await load_session(call, trashed=False)
    return InterruptResponse(session.id, await call.context.engine.interrupt(session.id))


async def messages(call: EndpointCall) -> MessageListResponse:
    """List messages page by page, each event verified by its hash."""
    query: request_models.PageRequest = call.query
    session = await load_session(call)

    def work(tx: Transaction) -> MessageListResponse:
        current = store.get(tx, session.id)
        entries = log.read_page(tx, current, after=query.after, limit=query.limit)
        said = [MessageItem.from_message(one) for entry in entries if (one := as_message(entry)) is not None]
        last = entries[-1].seq if entries else current.seq
        return MessageListResponse(current.id, said, last if last < current.seq else None)

    return await call.context.database.read(work)
