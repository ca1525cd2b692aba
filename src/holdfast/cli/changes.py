"""`holdfast sessions`: what can be done to one session and undone again."""

from typing import TYPE_CHECKING

import click

from holdfast.cli import face, render
from holdfast.interop import shapes
from holdfast.interop.visible import visible
from holdfast.model.ids import SESSION
from holdfast.model.session import Session
from holdfast.store import pins, sessions
from holdfast.store.database import Transaction

if TYPE_CHECKING:
    from holdfast.app import App


def tell(session: Session, text: str, *, as_json: bool) -> None:
    """The changed session, or a sentence about it."""
    if as_json:
        render.document(shapes.session(session))
    else:
        render.out(visible(text))


@click.command()
@click.argument("ref")
@click.argument("title")
@face.json_option
def rename(*, ref: str, title: str, as_json: bool) -> None:
    """Give a session a title."""

    def work(tx: Transaction, found: Session, app: "App") -> Session:
        return sessions.rename(tx, found.id, title, at=app.clock.now())

    session = face.change(ref, work)
    tell(session, f"{session.id} is now titled {session.summary.title!r}", as_json=as_json)


@click.command()
@click.argument("ref")
@click.option(
    "--message", "seq", type=click.IntRange(1, 2**53), metavar="SEQ", help="Pin this message in the context instead."
)
@click.option("--off", is_flag=True, help="Take the mark away again.")
@face.json_option
def pin(*, ref: str, seq: int | None, off: bool, as_json: bool) -> None:
    """Mark a session as one to keep: it is never pruned. With --message, keep a message in the context word for word."""

    def work(tx: Transaction, found: Session, app: "App") -> Session:
        if seq is not None:
            return pins.pin_message(tx, found.id, seq, pinned=not off, at=app.clock.now())
        return sessions.pin(tx, found.id, pinned=not off, at=app.clock.now())

    session = face.change(ref, work)
    what = session.id if seq is None else f"message {seq} of {session.id}"
    tell(session, f"{what} is {'no longer ' if off else ''}pinned", as_json=as_json)


@click.command()
@click.argument("ref")
@click.option("--at", "at_seq", type=click.IntRange(1), metavar="SEQ", help="Only up to this event.")
@click.option("--title", help="A title for the new session.")
@face.json_option
def fork(*, ref: str, at_seq: int | None, title: str | None, as_json: bool) -> None:
    """Begin a new session with what was said in this one."""

    def work(tx: Transaction, parent: Session, app: "App") -> Session:
        at = app.clock.now()
        forked = sessions.fork(tx, parent.id, app.ids.make(SESSION), at=at, at_seq=at_seq)
        return forked if title is None else sessions.rename(tx, forked.id, title, at=at)

    session = face.change(ref, work)
    tell(session, f"{session.id} goes on from {session.summary.parent_id}", as_json=as_json)


@click.command()
@click.argument("ref")
@face.json_option
def end(*, ref: str, as_json: bool) -> None:
    """End a session. It keeps all it holds and can be reopened."""

    def work(tx: Transaction, found: Session, app: "App") -> Session:
        return sessions.end(tx, found.id, "user", at=app.clock.now())

    session = face.change(ref, work)
    tell(session, f"{session.id} has ended ({session.summary.end_reason})", as_json=as_json)


@click.command()
@click.argument("ref")
@face.json_option
def reopen(*, ref: str, as_json: bool) -> None:
    """Take up an ended or quarantined session again, with all its messages."""

    def work(tx: Transaction, found: Session, app: "App") -> Session:
        return sessions.reopen(tx, found.id, at=app.clock.now(), reason="asked for")

    session = face.change(ref, work)
    tell(session, f"{session.id} is open again ({session.state})", as_json=as_json)
