"""`holdfast sessions search`."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.session_ref import REF
from holdfast.cli.progress import show_progress
from holdfast.cli.sessions.list import MOST
from holdfast.clock import format_local_time
from holdfast.model.sanitize import visible
from holdfast.model.text import counted
from holdfast.model.times import micros
from holdfast.store.repos import sessions as store

if TYPE_CHECKING:
    from holdfast.interop.documents.search import SearchResponse
    from holdfast.wiring.store import App


@click.command()
@click.argument("query")
@click.option("--session", "ref", type=REF, metavar="REF", help="Search only this session.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="Show at most this many matches."
)
@click.option("--role", type=click.Choice(("user", "assistant", "tool")), help="Search only what this side wrote.")
@click.option("--tool", metavar="NAME", help="Search only results of this tool, and replies that call it.")
@click.option(
    "--order",
    type=click.Choice(("relevance", "recent")),
    default="relevance",
    show_default=True,
    help="Show the best hits first, or the newest.",
)
@context.json_option
def search(*, query: str, ref: str | None, limit: int, order: str, as_json: bool, **only: str | None) -> None:
    """Search all messages, including compacted ones."""
    found = context.with_app(lambda app: _search(app, query, ref, limit, order, only))
    if as_json:
        return render.print_json(found)
    if not found.hits:
        return context.note("no matches")
    if found.similar:
        context.note("few exact matches; including similar words")
    counts = {one.session_id: one for one in found.sessions}
    for session_id in dict.fromkeys(hit.session_id for hit in found.hits):
        shown = [hit for hit in found.hits if hit.session_id == session_id]
        about = counts[session_id]
        number = counted(about.count, "hit") + ("" if found.complete else " or more")
        render.print_text(f"{render.bold(session_id)}  {visible(about.title or '')}  {render.dim(number)}")
        for hit in shown:
            heading = f"{hit.seq} · {_local(hit.at)} · {hit.kind}"
            render.print_text(f"  {render.dim(heading)}")
            render.print_text(f"    {render.highlight(hit.snippet, [(mark[0], mark[1]) for mark in hit.marks])}")
    return None


def _local(at: str) -> str:
    return format_local_time(micros(datetime.fromisoformat(at)))


async def _search(
    app: "App", query: str, ref: str | None, limit: int, order: str, only: dict[str, str | None]
) -> "SearchResponse":
    """The hits. The index is brought up to date first."""
    from holdfast.interop.documents.search import SearchResponse
    from holdfast.store.search import ranked_search
    from holdfast.store.search.index import SearchScope

    index = await app.search()
    with show_progress("indexing new messages") as update:
        await index.catch_up(update)
    session_id = None if ref is None else await _id_of(app, ref)
    scope = SearchScope(session_id=session_id, trashed=session_id is not None, role=only["role"], tool=only["tool"])
    if order == "recent":
        hits = await index.search(query, limit=limit, scope=scope)
        titles = await app.database.read(store.get_titles, {hit.session_id for hit in hits})
        return SearchResponse.recent(query, hits, titles, limit, pending=0)
    found = await ranked_search.find(index, query, scope=scope)
    titles = await app.database.read(store.get_titles, {hit.session_id for hit in found.hits})
    return SearchResponse.ranked(query, found, titles, range(limit))


async def _id_of(app: "App", ref: str) -> str:
    found = await app.database.read(store.resolve, ref, trashed=True)
    context.note_ambiguous(ref, found)
    return found.session.id
