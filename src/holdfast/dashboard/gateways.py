"""Pages about messaging platforms: connections, paired people, dead letters."""

import json
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.forms import action_response, get_fields, require_field
from holdfast.engine.liveness.janitor import assess_worker
from holdfast.model.errors import NotFound
from holdfast.store.database import Transaction
from holdfast.store.repos import contacts, inbox, outbox, platforms, workers
from holdfast.store.repos.inbox import InboundMessage
from holdfast.store.repos.outbox import Delivery

MAX_LISTED = 200
MAX_PAYLOAD_CHARS = 2_000


class GatewayStatus(msgspec.Struct, frozen=True):
    """Configuration and state of a platform."""

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
    problem: int


async def show_gateways(request: Request) -> Response:
    context = get_context(request)
    found, known, delayed = await context.database.read(
        lambda tx: (
            _read_gateways(tx, context),
            contacts.list_all(tx),
            outbox.list_delayed_chats(tx, context.now, MAX_LISTED),
        )
    )
    home = context.settings.gateway.home_channel or ""
    return templating.page_response(
        request, "gateways.html", gateways=found, people=known, delayed=delayed, home=home, now=context.now
    )


def _read_gateways(tx: Transaction, context: DashboardContext) -> list[GatewayStatus]:
    known = {one.name: one for one in platforms.list_all(tx)}
    arriving = {(name, state): count for name, state, count in inbox.count_by_state(tx)}
    leaving = {(name, state): count for name, state, count in outbox.count_by_state(tx)}
    found = []
    for name in sorted({*known, *context.settings.gateway.platforms}):
        one = known.get(name)
        worker = workers.get(tx, one.worker_id) if one is not None and one.worker_id else None
        gone = worker is not None and assess_worker(worker, context.identity).state in ("dead", "ended")
        found.append(
            GatewayStatus(
                name=name,
                configured=name in context.settings.gateway.platforms,
                state="off" if one is None or gone else one.state,
                since=one.since if one else None,
                worker_id=one.worker_id if one and not gone else None,
                error=one.error if one else "",
                error_at=one.error_at if one else None,
                received=one.received if one else 0,
                waiting=sum(arriving.get((name, state), 0) for state in ("waiting", "working")),
                dead=arriving.get((name, "dead"), 0),
                to_send=sum(leaving.get((name, state), 0) for state in ("waiting", "sending")),
                problem=sum(leaving.get((name, state), 0) for state in ("failed", "unknown")),
            )
        )
    return found


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
