"""`holdfast gateway`: connections, dead letters and paired people."""

import json
from typing import TYPE_CHECKING

import click

from holdfast.cli import context, render
from holdfast.cli.gateway_setup import setup
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.clock import format_local_time
from holdfast.interop.platform_status import PlatformStatus, list_statuses
from holdfast.interop.serialization import format_time
from holdfast.model.errors import NotFound
from holdfast.model.sanitize import one_line, visible
from holdfast.model.text import counted
from holdfast.process_lookup import current_identity
from holdfast.store.repos import contacts, inbox, outbox
from holdfast.store.repos.inbox import InboundMessage
from holdfast.store.repos.outbox import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.database import Transaction

LISTED = 50


@click.group(cls=SuggestingGroup)
def gateway() -> None:
    """Manage messaging platforms."""


gateway.add_command(setup)


@gateway.command()
@context.json_option
def status(*, as_json: bool) -> None:
    """Show connections, errors and queue lengths."""
    configured = context.settings().gateway.platforms
    found, delayed = context.with_app(
        lambda app: app.database.read(
            lambda tx: (
                list_statuses(tx, configured, current_identity()),
                outbox.list_delayed_chats(tx, app.clock.now(), LISTED),
            )
        )
    )
    if as_json:
        shown = [_status_document(one) for one in found]
        render.print_json({"platforms": shown, "delayed": [_delayed_document(one) for one in delayed]})
        return
    rows = [_row(one) for one in found]
    render.print_table(["platform", "state", "since", "inbound", "outbound", "last error"], rows, stretch=5)
    for one in delayed:
        count = counted(one.waiting, "message")
        render.print_text(
            visible(f"{one.platform}:{one.chat}: {count} delayed until {format_local_time(one.until)}: {one.reason}")
        )


def _delayed_document(one: outbox.DelayedChat) -> dict[str, object]:
    return {
        "platform": one.platform,
        "chat": one.chat,
        "until": format_time(one.until),
        "reason": one.reason,
        "waiting": one.waiting,
    }


def _row(one: PlatformStatus) -> list[str]:
    errored = f" ({format_local_time(one.error_at)})" if one.error_at is not None else ""
    error = one.gone or one.error
    return [
        one.name,
        one.state,
        "" if one.since is None else format_local_time(one.since),
        f"{one.received} received, {one.waiting} waiting, {one.dead} dead",
        f"{one.to_send} to send, {one.unknown} unknown, {one.failed} failed",
        f"{error}{errored}" if error else "",
    ]


def _status_document(one: PlatformStatus) -> dict[str, object]:
    return {
        "name": one.name,
        "configured": one.configured,
        "state": one.state,
        "since": format_time(one.since),
        "worker_id": one.worker_id,
        "error": one.gone or one.error,
        "error_at": format_time(one.error_at),
        "received": one.received,
        "waiting": one.waiting,
        "dead": one.dead,
        "to_send": one.to_send,
        "unknown": one.unknown,
        "failed": one.failed,
    }


@gateway.command()
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=LISTED, show_default=True, help="List at most this many of each."
)
@context.json_option
def dead(*, limit: int, as_json: bool) -> None:
    """List dead letters, inbound and outbound.

    Inbound: messages that could not be read or handled. Outbound: replies that failed or whose delivery is unknown.
    """
    inbound, outbound = context.read(lambda tx: (inbox.list_dead(tx, limit), outbox.list_undelivered(tx, limit)))
    if as_json:
        render.print_json(
            {"in": [_inbound_document(one) for one in inbound], "out": [_outbound_document(one) for one in outbound]}
        )
        return
    rows = [["in", one.id, one.platform, format_local_time(one.at), one.outcome, _payload_line(one)] for one in inbound]
    rows += [
        ["out", one.id, one.platform, format_local_time(one.at), f"{one.state}: {one.error}", one.message.text]
        for one in outbound
    ]
    render.print_table(["direction", "id", "platform", "time", "reason", "content"], rows, stretch=5)


def _payload_line(message: InboundMessage) -> str:
    return one_line(str(json.loads(message.payload))) if message.payload else ""


def _inbound_document(message: InboundMessage) -> dict[str, object]:
    return {
        "id": message.id,
        "platform": message.platform,
        "chat": message.chat,
        "message": message.message,
        "at": format_time(message.at),
        "attempts": message.attempts,
        "reason": message.outcome,
        "payload": json.loads(message.payload) if message.payload else "",
    }


def _outbound_document(delivery: Delivery) -> dict[str, object]:
    return {
        "id": delivery.id,
        "platform": delivery.platform,
        "chat": delivery.chat,
        "session_id": delivery.session_id,
        "turn_id": delivery.turn_id,
        "at": format_time(delivery.at),
        "state": delivery.state,
        "doubts": delivery.doubts,
        "reason": delivery.error,
        "text": delivery.message.text,
    }


@gateway.command()
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Retry everything that `holdfast gateway dead` lists.")
def replay(*, ids: tuple[str, ...], everything: bool) -> None:
    """Retry dead letters. The worker that serves the platform processes them."""
    if bool(ids) == everything:
        raise click.UsageError("give ids from 'holdfast gateway dead', or --all")

    for one in context.write(lambda tx, app: _change(tx, ids, inbox.replay, outbox.replay, at=app.clock.now())):
        render.print_text(f"Queued {one} for retry")


@gateway.command()
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Dismiss everything that `holdfast gateway dead` lists.")
def dismiss(*, ids: tuple[str, ...], everything: bool) -> None:
    """Stop listing dead letters. They stay in the store, and can be retried by their ids."""
    if bool(ids) == everything:
        raise click.UsageError("give ids from 'holdfast gateway dead', or --all")

    for one in context.write(lambda tx, app: _change(tx, ids, inbox.dismiss, outbox.dismiss, at=app.clock.now())):
        render.print_text(f"Dismissed {one}; retry it with: holdfast gateway replay {one}")


def _change(
    tx: "Transaction",
    ids: tuple[str, ...],
    inbound: "Callable[..., None]",
    outbound: "Callable[..., None]",
    *,
    at: int,
) -> list[str]:
    """Change the dead letters with these ids, or all that are listed; returns their ids."""
    every: list[InboundMessage | Delivery] = [*inbox.list_dead(tx, 2**31), *outbox.list_undelivered(tx, 2**31)]
    chosen = [_find(tx, one) for one in ids] if ids else every
    for one in chosen:
        if isinstance(one, InboundMessage):
            inbound(tx, one, at=at)
        else:
            outbound(tx, one, at=at)
    return [one.id for one in chosen]


def _find(tx: "Transaction", ref: str) -> InboundMessage | Delivery:
    delivery = outbox.find(tx, ref)
    if delivery is not None:
        return delivery
    try:
        return inbox.get(tx, ref)
    except NotFound as e:
        raise NotFound(f"no message {ref} in the inbox or the outbox") from e


@gateway.command()
@click.argument("code")
def pair(*, code: str) -> None:
    """Approve the person who received pairing code CODE."""
    person = context.write(lambda tx, app: contacts.approve(tx, code, at=app.clock.now()))
    render.print_text(visible(f"Approved {person.name or person.person} on {person.platform}"))


@gateway.command("people")
@context.json_option
def people_(*, as_json: bool) -> None:
    """List approved people and open pairing codes."""
    found = context.read(contacts.list_all)
    if as_json:
        shown = [
            {
                "platform": one.platform,
                "person": one.person,
                "name": one.name,
                "state": one.state,
                "at": format_time(one.at),
            }
            for one in found
        ]
        render.print_json({"people": shown})
        return
    rows = [[one.platform, one.person, one.state, format_local_time(one.at), one.name] for one in found]
    render.print_table(["platform", "person", "state", "since", "name"], rows, stretch=4)


@gateway.command()
@click.argument("platform")
@click.argument("person")
def unpair(*, platform: str, person: str) -> None:
    """Revoke the pairing of a person. People in `allow` keep access."""
    context.write(lambda tx, app: contacts.revoke(tx, platform, person))
    render.print_text(visible(f"Revoked {person} on {platform}"))
