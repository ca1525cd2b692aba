"""`holdfast sessions verify`: proves that what is stored is what was written."""

from typing import TYPE_CHECKING

import click

from holdfast.cli import errors, face, render
from holdfast.interop.visible import visible
from holdfast.model.counted import counted
from holdfast.store import sessions

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.store.verify import Report


@click.command()
@click.argument("refs", metavar="[REF]...", nargs=-1)
@face.json_option
@click.pass_context
def verify(ctx: click.Context, *, refs: tuple[str, ...], as_json: bool) -> None:
    """Check every hash of these sessions, or of all of them and the database as well."""
    report = face.with_app(lambda app: _verify(app, refs))
    if as_json:
        problems = [{"session_id": one.session_id, "seq": one.seq, "what": one.what} for one in report.problems]
        checked = {"ok": report.ok, "sessions": report.sessions, "events": report.events}
        render.document({**checked, "problems": problems})
    else:
        for one in report.problems:
            render.out(visible(f"{one.session_id or 'the store'}: {one.what}"))
        faults = f"{len(report.problems)} problems" if report.problems else "everything is as it was written"
        render.out(f"{counted(report.sessions, 'session')}, {counted(report.events, 'event')}: {faults}")
    if not report.ok:
        ctx.exit(errors.FAILED)


async def _verify(app: "App", refs: tuple[str, ...]) -> "Report":
    from holdfast.store.verify import verify as prove

    found = [await app.database.read(sessions.resolve, ref, trashed=True) for ref in refs]
    for ref, one in zip(refs, found, strict=True):
        face.tell_others(ref, one)
    with render.progress("checking") as update:
        return await prove(app.database, [one.session.id for one in found] if refs else None, update)
