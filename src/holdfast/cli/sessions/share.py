"""`holdfast sessions share` and `unshare`: read-only links to sessions."""

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.session_ref import REF
from holdfast.clock import format_local_time
from holdfast.interop import sharing
from holdfast.interop.documents.shares import NewShareResponse, ShareItem, ShareListResponse, state
from holdfast.model.text import counted
from holdfast.store.repos import sessions, shares
from holdfast.store.repos.sessions import ResolvedRef
from holdfast.store.repos.shares import Share

if TYPE_CHECKING:
    from holdfast.interop.sharing import NewShare
    from holdfast.store.database import Transaction
    from holdfast.wiring.store import App

BY = "the command line"


@click.command()
@click.argument("ref", type=REF)
@click.option(
    "--days",
    type=click.IntRange(1, sharing.MAX_DAYS),
    default=sharing.DEFAULT_DAYS,
    show_default=True,
    help="Let the link expire after this many days.",
)
@click.option("--list", "listing", is_flag=True, help="List the links of the session instead.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@context.json_option
def share(*, ref: str, days: int, listing: bool, yes: bool, as_json: bool) -> None:
    """Create a read-only link to a session as it is now. Anyone who has the link can read it without a key."""
    if listing:
        return _list(ref, as_json=as_json)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"add --yes to share. {sharing.WARNING}")
        context.note(sharing.WARNING)
        if not click.confirm("Share it?", err=True):
            return None
    found, new = context.with_app(lambda app: _share(app, ref, days))
    context.note_ambiguous(ref, found)
    api = context.settings().api
    document = NewShareResponse.from_new(new, f"http://{api.host}:{api.port}", sharing.WARNING)
    if as_json:
        return render.print_json(document)
    render.print_text(document.url)
    context.note(
        f"'holdfast serve' serves this link until {format_local_time(new.share.expires_at)}; it is not shown again. "
        f"Revoke it with: holdfast sessions unshare {new.share.session_id}"
    )
    return None


async def _share(app: "App", ref: str, days: int) -> "tuple[ResolvedRef, NewShare]":
    found = await app.database.read(sessions.resolve, ref, trashed=True)
    return found, await sharing.create(
        app.database, context.actions_of(app).ids, found.session.id, days=days, by=BY, at=app.clock.now()
    )


def _list(ref: str, *, as_json: bool) -> None:
    at, found = context.with_app(lambda app: _links(app, ref))
    if as_json:
        return render.print_json(ShareListResponse([ShareItem.from_share(one, at=at) for one in found]))
    if not found:
        return context.note("this session has no links")
    rows = [
        [one.id, state(one, at), format_local_time(one.created_at), one.created_by, format_local_time(one.expires_at)]
        for one in found
    ]
    return render.print_table(["link", "state", "created", "by", "expires"], rows, stretch=0)


async def _links(app: "App", ref: str) -> tuple[int, list[Share]]:
    found = await app.database.read(sessions.resolve, ref, trashed=True)
    return app.clock.now(), await app.database.read(shares.list_by_session, found.session.id)


@click.command()
@click.argument("ref", type=REF)
@click.option("--link", metavar="ID", help="Revoke only this link; by default all links of the session.")
@context.json_option
def unshare(*, ref: str, link: str | None, as_json: bool) -> None:
    """Revoke the links of a session: they stop working at once."""

    def work(tx: "Transaction", app: "App") -> tuple[ResolvedRef, int]:
        found, at = sessions.resolve(tx, ref, trashed=True), app.clock.now()
        if link is None:
            return found, shares.revoke_all(tx, found.session.id, by=BY, at=at)
        shares.revoke(tx, shares.resolve(tx, link), by=BY, at=at)
        return found, 1

    found, count = context.write(work)
    context.note_ambiguous(ref, found)
    if as_json:
        render.print_json({"session_id": found.session.id, "revoked": count})
    else:
        render.print_text(f"Revoked {counted(count, 'link')} of {found.session.id}")
