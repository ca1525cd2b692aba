"""Read-only links to sessions."""

from holdfast.api.context import API_USER
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.interop import sharing
from holdfast.interop.documents.shares import NewShareResponse, ShareItem, ShareListResponse
from holdfast.store.database import Transaction
from holdfast.store.repos import shares


async def share(call: EndpointCall) -> NewShareResponse:
    """Create a read-only link to the session as it is now. Whoever has it needs no key."""
    body: request_models.ShareRequest = call.body
    session, services = await load_session(call, trashed=False), call.context.engine.services
    new = await sharing.create(
        services.database, services.ids, session.id, days=body.days, by=API_USER, at=services.clock.now()
    )
    base = f"{call.request.url.scheme}://{call.request.headers.get('host', '')}"
    return NewShareResponse.from_new(new, base, sharing.WARNING)


async def list_(call: EndpointCall) -> ShareListResponse:
    """List the links of the session, newest first, also those that no longer work."""
    session, at = await load_session(call), call.context.engine.services.clock.now()
    found = await call.context.database.read(shares.list_by_session, session.id)
    return ShareListResponse([ShareItem.from_share(one, at=at) for one in found])


async def revoke(call: EndpointCall) -> ShareItem:
    """Revoke a link: it stops working at once."""
    at, ref = call.context.engine.services.clock.now(), call.path_param("id")

    def work(tx: Transaction) -> ShareItem:
        return ShareItem.from_share(shares.revoke(tx, shares.resolve(tx, ref), by=API_USER, at=at), at=at)

    return await call.context.database.write(work)
