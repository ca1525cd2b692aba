"""`holdfast sessions rename`, `pin`, `mode`, `fork`, `end` and `reopen`."""

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.session_ref import REF
from holdfast.interop.documents.sessions import SessionResponse
from holdfast.model.mode import LOCAL_USER, MODE_HELP, MODES, Mode
from holdfast.model.sanitize import visible
from holdfast.model.session import Session


def _print_result(session: Session, text: str, *, as_json: bool) -> None:
    """Print the changed session as JSON, or a line about it."""
    if as_json:
        render.print_json(SessionResponse.from_session(session))
    else:
        render.print_text(visible(text))


@click.command()
@click.argument("ref", type=REF)
@click.argument("title")
@context.json_option
def rename(*, ref: str, title: str, as_json: bool) -> None:
    """Set the title of a session."""
    session = context.act(ref, lambda actions, found: actions.rename(found.id, title))
    _print_result(session, f"Renamed {session.id} to {session.summary.title!r}", as_json=as_json)


@click.command()
@click.argument("ref", type=REF)
@click.option(
    "--message", "seq", type=click.IntRange(1, 2**53), metavar="SEQ", help="Pin this message instead of the session."
)
@click.option("--off", is_flag=True, help="Remove the pin.")
@context.json_option
def pin(*, ref: str, seq: int | None, off: bool, as_json: bool) -> None:
    """Pin a session, so that it is never pruned. With --message, keep one message verbatim in the context."""
    if seq is None:
        session = context.act(ref, lambda actions, found: actions.pin(found.id, pinned=not off))
    else:
        session = context.act(ref, lambda actions, found: actions.pin_message(found.id, seq, pinned=not off))
    what = session.id if seq is None else f"message {seq} of {session.id}"
    _print_result(session, f"{'Unpinned' if off else 'Pinned'} {what}", as_json=as_json)


@click.command()
@click.argument("ref", type=REF)
@click.argument("mode", type=click.Choice(MODES))
@context.json_option
def mode(*, ref: str, mode: Mode, as_json: bool) -> None:
    """Change the permission mode of a session, also while it runs."""
    session = context.act(ref, lambda actions, found: actions.set_mode(found.id, mode, by=LOCAL_USER))
    _print_result(session, f"{session.id} is in permission mode {mode}: {MODE_HELP[mode]}", as_json=as_json)


@click.command()
@click.argument("ref", type=REF)
@click.option("--at", "at_seq", type=click.IntRange(1), metavar="SEQ", help="Copy only up to this event.")
@click.option("--title", help="Set the title of the new session.")
@context.json_option
def fork(*, ref: str, at_seq: int | None, title: str | None, as_json: bool) -> None:
    """Copy a session into a new one."""
    session = context.act(ref, lambda actions, found: actions.fork(found.id, at_seq=at_seq, title=title))
    _print_result(session, f"Forked {session.summary.parent_id} into {session.id}", as_json=as_json)


@click.command()
@click.argument("ref", type=REF)
@context.json_option
def end(*, ref: str, as_json: bool) -> None:
    """End a session. Nothing is deleted, and it can be reopened."""
    session = context.act(ref, lambda actions, found: actions.end(found.id))
    _print_result(session, f"Ended {session.id}", as_json=as_json)


@click.command()
@click.argument("ref", type=REF)
@context.json_option
def reopen(*, ref: str, as_json: bool) -> None:
    """Reopen an ended or quarantined session."""
    session = context.act(ref, lambda actions, found: actions.reopen(found.id, reason="requested on the command line"))
    _print_result(session, f"Reopened {session.id} ({session.state})", as_json=as_json)
