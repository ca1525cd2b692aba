"""`holdfast gateway`: what is connected, what could not be dealt with or delivered, and who may talk."""

import json
from typing import TYPE_CHECKING

import click

from holdfast.cli import face, render
from holdfast.engine.janitor import first_look
from holdfast.identity import identity
from holdfast.interop import shapes
from holdfast.interop.visible import one_line, visible
from holdfast.model.errors import NotFound
from holdfast.store import inbox, outbox, people, platforms, workers
from holdfast.store.inbox import Letter
from holdfast.store.outbox import Delivery

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.store.database import Transaction

LISTED = 50


@click.group()
def gateway() -> None:
    """Messaging platforms: their state, messages that are stuck, and people."""


@gateway.command()
@face.json_option
def status(*, as_json: bool) -> None:
    """What is connected, since when, the last error, and how much waits."""
    found = face.read(_look)
    shown = _status(face.settings().gateway.platforms, found)
    if as_json:
        render.document({"platforms": shown})
        return
    rows = [_row(one, found[0].get(str(one["name"]))) for one in shown]
    render.table(["platform", "state", "since", "in", "out", "last error"], rows, stretch=5)


def _row(shown: dict[str, object], known: platforms.Platform | None) -> list[str]:
    errored = render.day(known.error_at) if known is not None and known.error_at is not None else ""
    return [
        str(shown["name"]),
        str(shown["state"]),
        render.day(known.since) if known is not None else "",
        f"{shown['received']} received, {shown['waiting']} waiting, {shown['dead']} dead",
        f"{shown['to_send']} to send, {shown['unknown']} unknown, {shown['failed']} failed",
        f"{shown['error']} ({errored})" if shown["error"] and errored else str(shown["error"]),
    ]


_Found = tuple[dict[str, platforms.Platform], dict[str, str], dict[tuple[str, str], int], dict[tuple[str, str], int]]


def _look(tx: "Transaction") -> _Found:
    known = {one.name: one for one in platforms.every(tx)}
    ours, gone = identity(), {}
    for one in known.values():
        worker = workers.get(tx, one.worker_id or "")
        if worker is not None and (verdict := first_look(worker, ours)).state in ("dead", "ended"):
            gone[one.name] = verdict.evidence
    waiting = {(name, state): count for name, state, count in inbox.depths(tx)}
    sending = {(name, state): count for name, state, count in outbox.depths(tx)}
    return known, gone, waiting, sending


def _status(configured: object, found: _Found) -> list[dict[str, object]]:
    known, gone, waiting, sending = found
    assert isinstance(configured, dict), "the settings hold a table"
    shown = []
    for name in sorted({*known, *configured}):
        one = known.get(name)
        state = "off" if one is None or name in gone else one.state
        shown.append(
            {
                "name": name,
                "configured": name in configured,
                "state": state,
                "since": shapes.time(one.since) if one else None,
                "worker_id": one.worker_id if one and name not in gone else None,
                "error": gone.get(name) or (one.error if one else ""),
                "error_at": shapes.time(one.error_at) if one else None,
                "received": one.received if one else 0,
                "waiting": sum(waiting.get((name, kind), 0) for kind in ("waiting", "working")),
                "dead": waiting.get((name, "dead"), 0),
                "to_send": sum(sending.get((name, kind), 0) for kind in ("waiting", "sending")),
                "unknown": sending.get((name, "unknown"), 0),
                "failed": sending.get((name, "failed"), 0),
            }
        )
    return shown


@gateway.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=LISTED, show_default=True, help="How many of each.")
@face.json_option
def dead(*, limit: int, as_json: bool) -> None:
    """Messages that could not be understood or dealt with, and replies that failed or may not have arrived."""
    letters, deliveries = face.read(lambda tx: (inbox.dead(tx, limit), outbox.trouble(tx, limit)))
    if as_json:
        render.document({"in": [_letter(one) for one in letters], "out": [_delivery(one) for one in deliveries]})
        return
    rows = [["in", one.id, one.platform, render.day(one.at), one.outcome, _payload(one)] for one in letters]
    rows += [
        ["out", one.id, one.platform, render.day(one.at), f"{one.state}: {one.error}", one.message.text]
        for one in deliveries
    ]
    render.table(["way", "id", "platform", "when", "why", "what"], rows, stretch=5)


def _payload(letter: Letter) -> str:
    return one_line(str(json.loads(letter.payload))) if letter.payload else ""


def _letter(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.id,
        "platform": letter.platform,
        "chat": letter.chat,
        "message": letter.message,
        "at": shapes.time(letter.at),
        "attempts": letter.attempts,
        "reason": letter.outcome,
        "payload": json.loads(letter.payload) if letter.payload else "",
    }


def _delivery(delivery: Delivery) -> dict[str, object]:
    return {
        "id": delivery.id,
        "platform": delivery.platform,
        "chat": delivery.chat,
        "session_id": delivery.session_id,
        "turn_id": delivery.turn_id,
        "at": shapes.time(delivery.at),
        "state": delivery.state,
        "doubts": delivery.doubts,
        "reason": delivery.error,
        "text": delivery.message.text,
    }


@gateway.command()
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that `holdfast gateway dead` lists.")
def replay(*, ids: tuple[str, ...], everything: bool) -> None:
    """Try again what could not be dealt with or delivered; a worker that serves the platform does it."""
    if bool(ids) == everything:
        raise click.UsageError("give the ids that 'holdfast gateway dead' lists, or --all")

    def work(tx: "Transaction", app: "App") -> list[str]:
        at = app.clock.now()
        every: list[Letter | Delivery] = [*inbox.dead(tx, 2**31), *outbox.trouble(tx, 2**31)]
        chosen = every if everything else [_find(tx, one) for one in ids]
        for one in chosen:
            if isinstance(one, Letter):
                inbox.replay(tx, one, at=at)
            else:
                outbox.replay(tx, one, at=at)
        return [one.id for one in chosen]

    for one in face.write(work):
        render.out(f"{one} is tried again")


def _find(tx: "Transaction", ref: str) -> Letter | Delivery:
    delivery = outbox.find(tx, ref)
    if delivery is not None:
        return delivery
    try:
        return inbox.get(tx, ref)
    except NotFound as e:
        raise NotFound(f"neither the inbox nor the outbox has a message {ref}") from e


@gateway.command()
@click.argument("code")
def pair(*, code: str) -> None:
    """Let the person in who was given CODE."""
    person = face.write(lambda tx, app: people.let_in(tx, code, at=app.clock.now()))
    render.out(visible(f"{person.name or person.person} may talk on {person.platform} from now on"))


@gateway.command("people")
@face.json_option
def people_(*, as_json: bool) -> None:
    """People who were let in with a code, and strangers who have one."""
    found = face.read(people.every)
    if as_json:
        shown = [
            {
                "platform": one.platform,
                "person": one.person,
                "name": one.name,
                "state": one.state,
                "at": shapes.time(one.at),
            }
            for one in found
        ]
        render.document({"people": shown})
        return
    rows = [[one.platform, one.person, one.state, render.day(one.at), one.name] for one in found]
    render.table(["platform", "person", "state", "since", "name"], rows, stretch=4)


@gateway.command()
@click.argument("platform")
@click.argument("person")
def unpair(*, platform: str, person: str) -> None:
    """Let a person in no longer. Those whom the settings name stay."""
    face.write(lambda tx, app: people.turn_out(tx, platform, person))
    render.out(visible(f"{person} may no longer talk on {platform}"))
