"""Pages about messaging platforms: connections, paired people, dead letters."""

import json
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import get_context
from holdfast.dashboard.forms import action_response, get_fields, require_field
from holdfast.interop.platform_status import list_statuses
from holdfast.model.errors import NotFound
from holdfast.store.database import Transaction
from holdfast.store.repos import contacts, inbox, outbox
from holdfast.store.repos.inbox import InboundMessage
from holdfast.store.repos.outbox import Delivery

MAX_LISTED = 200
MAX_PAYLOAD_CHARS = 2_000


async def show_gateways(request: Request) -> Response:
    context = get_context(request)
    found, known, delayed = await context.database.read(
        lambda tx: (
            list_statuses(tx, context.settings.gateway.platforms, context.identity),
            contacts.list_all(tx),
            outbox.list_delayed_chats(tx, context.now, MAX_LISTED),
        )
    )
    home = context.settings.gateway.home_channel or ""
    return templating.page_response(
        request, "gateways.html", gateways=found, people=known, delayed=delayed, home=home, now=context.now
    )


async def pair(request: Request) -> Response:
    context = get_context(request)
    person = await context.database.write(contacts.approve, require_field(request, "code").strip(), at=context.now)
    text = f"{person.name or person.person} is now paired on {person.platform}"
    return action_response(request, text, "/ui/gateways")


async def unpair(request: Request) -> Response:
    context = get_context(request)
    await context.database.write(contacts.revoke, require_field(request, "platform"), require_field(request, "person"))
    return action_response(request, "Access revoked", "/ui/gateways")


async def show_dead_letters(request: Request) -> Response:
    context = get_context(request)
    messages, deliveries = await context.database.read(
        lambda tx: (inbox.list_dead(tx, MAX_LISTED), outbox.list_undelivered(tx, MAX_LISTED))
    )
    inbound = [(one, _format_payload(one)) for one in messages]
    return templating.page_response(request, "dead.html", inbound=inbound, outbound=deliveries, now=context.now)


def _format_payload(message: InboundMessage) -> str:
    try:
        text = json.dumps(json.loads(message.payload), ensure_ascii=False, indent=2) if message.payload else ""
    except (ValueError, RecursionError):
        text = message.payload
    return text[:MAX_PAYLOAD_CHARS]


async def replay(request: Request) -> Response:
    """Retry one dead letter, or all that are listed."""
    count = await _change(request, inbox.replay, outbox.replay)
    return action_response(request, f"{count} queued for retry", "/ui/dead")


async def dismiss(request: Request) -> Response:
    """Stop listing one dead letter, or all that are listed."""
    count = await _change(request, inbox.dismiss, outbox.dismiss)
    return action_response(request, f"{count} dismissed; they stay in the store", "/ui/dead")


async def _change(request: Request, inbound: Callable[..., None], outbound: Callable[..., None]) -> int:
    """Change the dead letter that the form names, or all that are listed; returns how many. Raises NotFound if there is none."""
    context, ref = get_context(request), get_fields(request).get("id", "")

    def work(tx: Transaction) -> int:
        every: list[InboundMessage | Delivery] = [
            *inbox.list_dead(tx, MAX_LISTED),
            *outbox.list_undelivered(tx, MAX_LISTED),
        ]
        chosen = [one for one in every if ref in ("", one.id)]
        for one in chosen:
            if isinstance(one, InboundMessage):
                inbound(tx, one, at=context.now)
            else:
                outbound(tx, one, at=context.now)
        return len(chosen)

    count = await context.database.write(work)
    if not count:
        raise NotFound("this dead letter no longer exists")
    return count
