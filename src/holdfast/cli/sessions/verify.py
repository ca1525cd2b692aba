"""`holdfast sessions verify`: verify the hash chain of sessions."""

from typing import TYPE_CHECKING

import click

from holdfast.cli import context, errors, render
from holdfast.cli.parsing.session_ref import REF
from holdfast.cli.progress import show_progress
from holdfast.model.sanitize import visible
from holdfast.model.text import counted
from holdfast.store.repos import sessions

if TYPE_CHECKING:
    from holdfast.store.verify import VerifyReport
    from holdfast.wiring.store import App


@click.command()
@click.argument("refs", type=REF, metavar="[REF]...", nargs=-1)
@context.json_option
@click.pass_context
def verify(ctx: click.Context, *, refs: tuple[str, ...], as_json: bool) -> None:
    """Verify the hashes of sessions, or of the whole store."""
    report = context.with_app(lambda app: _verify(app, refs))
    if as_json:
        problems = [{"session_id": one.session_id, "seq": one.seq, "what": one.what} for one in report.problems]
        checked = {"ok": report.ok, "sessions": report.sessions, "events": report.events}
        render.print_json({**checked, "problems": problems})
    else:
        for one in report.problems:
            render.print_text(visible(f"{one.session_id or 'the store'}: {one.what}"))
        result = counted(len(report.problems), "problem") if report.problems else "no problems found"
        render.print_text(
            f"Verified {counted(report.sessions, 'session')}, {counted(report.events, 'event')}: {result}"
        )
    if not report.ok:
        ctx.exit(errors.FAILED)


async def _verify(app: "App", refs: tuple[str, ...]) -> "VerifyReport":
    from holdfast.store.verify import verify as verify_store

    found = [await app.database.read(sessions.resolve, ref, trashed=True) for ref in refs]
    for ref, one in zip(refs, found, strict=True):
        context.note_ambiguous(ref, one)
    with show_progress("verifying") as update:
        return await verify_store(app.database, [one.session.id for one in found] if refs else None, update)
