"""Links to sessions: the pages that they show without a login, and the actions that create and revoke them."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.auth import is_https
from holdfast.dashboard.context import ACTOR, get_context
from holdfast.dashboard.forms import parse_int_field, require_field
from holdfast.dashboard.session import load_session
from holdfast.interop import sharing
from holdfast.interop.documents.shares import state
from holdfast.interop.pages import document, images
from holdfast.interop.pages.document import SharedPage
from holdfast.interop.pages.rendering import ItemLinks
from holdfast.interop.pages.transcript import PageItem, PageTranscript
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.text import parse_decimal
from holdfast.store.database import Transaction
from holdfast.store.repos import log, shares
from holdfast.store.repos.shares import Share

PAGE_EVENTS = 300
"""Events on one page of a shared session; arbitrary, enough for most."""
EXPIRIES = ((1, "1 day"), (7, "7 days"), (30, "30 days"), (365, "a year"))
GONE = "This link does not exist, has expired or was revoked."
PUBLIC_HEADERS = {
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex, nofollow, noarchive",
    "cache-control": "no-store",
}


def public_policy() -> str:
    """The content security policy of a shared page: one stylesheet, images of this server, and nothing else."""
    return (
        f"default-src 'none'; style-src {document.style_digest()}; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


async def show_shared(request: Request) -> Response:
    """A part of a shared session. Whoever has the link needs no login."""
    context, token = get_context(request), request.path_params["token"]
    number = parse_decimal(request.query_params.get("page", "1"))
    if not number:
        raise NotFound("there is no such page")
    share, title, entries, undone = await context.database.read(_read_shared, token, number, context.now)
    path = f"/share/{token}"
    page = SharedPage(
        title=title,
        shared_at=share.created_at,
        expires_at=share.expires_at,
        items=await asyncio.to_thread(_make_items, entries, undone),
        links=ItemLinks(image=lambda place: f"{path}/image/{place}"),
        earlier=f"{path}?page={number - 1}" if number > 1 else "",
        later=f"{path}?page={number + 1}" if number * PAGE_EVENTS < share.upto_seq else "",
    )
    text = await asyncio.to_thread(document.render_shared, page)
    headers = PUBLIC_HEADERS | {"content-security-policy": public_policy()}
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type="text/html")


def _make_items(entries: list[Entry], undone: list[range]) -> list[PageItem]:
    """The items of a page, without those that were undone on a later page or since the session was shared."""
    transcript = PageTranscript()
    transcript.add_all(entries)
    return [one for one in transcript.items.values() if not any(one.seq in seqs for seqs in undone)]


def _read_shared(tx: Transaction, token: str, number: int, at: int) -> tuple[Share, str, list[Entry], list[range]]:
    share = shares.find(tx, token, at=at)
    first = (number - 1) * PAGE_EVENTS + 1
    if first > share.upto_seq:
        raise NotFound("there is no such page")
    entries = log.read(tx, share.session_id, first=first, last=min(share.upto_seq, first + PAGE_EVENTS - 1))
    title = sharing.shown_title(tx, share)
    return share, title, entries, shares.list_undone(tx, share.session_id, after=first)


async def send_shared_image(request: Request) -> Response:
    """An image of a shared session, unless it was undone or came after the session was shared."""
    context, parameters = get_context(request), request.path_params
    seq = parameters["seq"]

    def work(tx: Transaction) -> tuple[Share, list[Entry]]:
        share = shares.find(tx, parameters["token"], at=context.now)
        is_hidden = seq > share.upto_seq or any(
            seq in undone for undone in shares.list_undone(tx, share.session_id, after=seq)
        )
        return share, [] if is_hidden else log.read(tx, share.session_id, first=seq, last=seq)

    share, found = await context.database.read(work)
    if not found:
        raise NotFound("image not found")
    home, number = context.settings.home, parameters["number"]
    data, media_type = await asyncio.to_thread(images.read_image, home, share.session_id, found[0], number)
    return Response(data, headers=PUBLIC_HEADERS, media_type=media_type)


def refuse_shared() -> Response:
    """The response to every link that shows nothing, whatever the reason."""
    headers = PUBLIC_HEADERS | {"content-security-policy": "default-src 'none'"}
    return Response(GONE, 404, headers=headers, media_type="text/plain")


async def show_links(request: Request) -> Response:
    """The links of a session: a panel of its page, or a page of its own without scripts."""
    return await _render_links(request, request.path_params["id"])


async def share(request: Request) -> Response:
    """Create a link, and show it once."""
    context, services = get_context(request), get_context(request).engine.services
    days = parse_int_field(request, "days")
    if days is None:
        raise Invalid("days is empty")
    session = await context.database.read(load_session, request.path_params["id"])
    new = await sharing.create(context.database, services.ids, session.id, days=days, by=ACTOR, at=context.now)
    origin = f"{'https' if is_https(request) else 'http'}://{request.headers.get('host', '')}"
    return await _render_links(request, session.id, url=origin + new.path)


async def revoke(request: Request) -> Response:
    """Revoke one link."""
    context, share_id = get_context(request), require_field(request, "share")
    revoked = await context.database.write(shares.revoke, share_id, by=ACTOR, at=context.now)
    return await _render_links(request, revoked.session_id)


async def _render_links(request: Request, session_id: str, url: str = "") -> Response:
    context = get_context(request)
    session = await context.database.read(load_session, session_id)
    found = await context.database.read(shares.list_by_session, session.id)
    return templating.page_response(
        request,
        "shares.html",
        session=session,
        shares=[(one, state(one, context.now)) for one in found],
        url=url,
        warning=sharing.WARNING,
        days=EXPIRIES,
        default_days=sharing.DEFAULT_DAYS,
        trash=session.summary.trashed_at is not None,
    )
