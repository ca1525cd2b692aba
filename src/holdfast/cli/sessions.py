"""`holdfast sessions`: list them, show one, search in all of them."""

from typing import TYPE_CHECKING, get_args

import click

from holdfast.cli import face, render
from holdfast.cli.lazy import LazyGroup
from holdfast.interop import shapes
from holdfast.interop.visible import visible
from holdfast.model.counted import counted
from holdfast.model.entry import Entry
from holdfast.model.event import Source
from holdfast.model.message import Message, Reasoning
from holdfast.model.session import Session, State, messages
from holdfast.store import log
from holdfast.store import sessions as store
from holdfast.store.database import Transaction

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.store.search import Hit

PAGE = 50
MOST = 1_000
"""The longest page; `--all` is for more."""

COMMANDS = {
    "list": "sessions:list_",
    "show": "sessions:show",
    "search": "sessions:search",
    "rename": "changes:rename",
    "pin": "changes:pin",
    "export": "files:export",
    "import": "imports:import_",
    "fork": "changes:fork",
    "end": "changes:end",
    "reopen": "changes:reopen",
    "delete": "trash:delete",
    "restore": "trash:restore",
    "prune": "trash:prune",
    "verify": "proof:verify",
    "stats": "stats:stats",
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def sessions() -> None:
    """List, read, search, keep and prove sessions.

    REF is a session's id, the beginning of one (6 characters or more), another name of it, or its exact title.
    """


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Every session of the store, trash and side requests included.")
@click.option("--limit", type=click.IntRange(1, MOST), default=PAGE, show_default=True, help="How many on a page.")
@click.option("--cursor", help="Where the last page ended.")
@click.option("--source", type=click.Choice(get_args(Source)), help="Only those begun there.")
@click.option("--state", type=click.Choice(get_args(State)), help="Only those in this state.")
@click.option("--channel", help="Only those of this channel.")
@click.option("--model", help="Only those of this model.")
@click.option("--pinned", is_flag=True, help="Only pinned ones.")
@click.option("--trash", is_flag=True, help="Those in the trash instead.")
@click.option("--sides", is_flag=True, help="Side requests of clients as well.")
@face.json_option
def list_(
    *,
    everything: bool,
    limit: int,
    cursor: str | None,
    source: str | None,
    state: State | None,
    channel: str | None,
    model: str | None,
    pinned: bool,
    trash: bool,
    sides: bool,
    as_json: bool,
) -> None:
    """List sessions, newest activity first."""
    if everything and cursor:
        raise click.UsageError("--all needs no --cursor")
    filters = store.Filters(
        source=source,
        state=state,
        channel=channel,
        model=model,
        pinned=1 if pinned else None,
        trashed=1 if trash else 2 if everything else 0,
        sides=int(sides or everything),
    )
    page = face.read_true(
        lambda tx: _all(tx, filters) if everything else store.list_page(tx, filters, limit=limit, cursor=cursor),
        lambda page: page.sessions,
    )
    if as_json:
        return render.document({"sessions": [shapes.session(one) for one in page.sessions], "next": page.next})
    return _table(page)


def _all(tx: Transaction, filters: store.Filters) -> store.Page:
    """Every page, on one snapshot: what moves meanwhile is neither missed nor listed twice."""
    page = store.list_page(tx, filters, limit=MOST)
    found = page.sessions
    while page.next is not None:
        page = store.list_page(tx, filters, limit=MOST, cursor=page.next)
        found += page.sessions
    return store.Page(found, None)


def _table(page: store.Page) -> None:
    if not page.sessions:
        return face.note("no sessions")
    columns = ("ID", "STATE", "SOURCE", "MESSAGES", "LAST ACTIVITY", "TITLE")
    render.table(columns, [_row(one) for one in page.sessions], stretch=5)
    if page.next is not None:
        face.note(f"there are more: --cursor {page.next}")
    return None


def _row(one: Session) -> tuple[str, ...]:
    summary = one.summary
    marks = ("pinned " if summary.pinned else "") + ("in trash " if summary.trashed_at is not None else "")
    title = summary.title or (f"({summary.preview})" if summary.preview else "")
    state = one.state if not marks else f"{one.state} ({marks.strip()})"
    return one.id, state, summary.source, str(summary.message_count), render.day(summary.updated_at), title


@click.command()
@click.argument("ref")
@click.option("--events", is_flag=True, help="Every event of the log instead of the messages.")
@face.json_option
def show(*, ref: str, events: bool, as_json: bool) -> None:
    """Show a session and what was said in it, proved whole by count and hash."""
    session, entries = face.read_one(ref, lambda tx, found: (found, log.read_whole(tx, found)))
    if as_json:
        content = (
            {"events": [shapes.event(entry) for entry in entries]}
            if events
            else {"messages": [shapes.message(said) for said in messages(entries)]}
        )
        return render.document(shapes.session(session) | content)
    _show_session(session)
    for entry in entries if events else ():
        _show_event(entry)
    for said in () if events else messages(entries):
        _show_message(said)
    return None


def _show_session(session: Session) -> None:
    summary = session.summary
    render.out(render.strong(visible(summary.title or summary.preview or session.id)))
    facts = [session.id, session.state, summary.model, counted(summary.message_count, "message"), f"seq {session.seq}"]
    if summary.trashed_at is not None:
        facts.append("in the trash")
    render.out(render.faint(visible(" · ".join(fact for fact in facts if fact))))


def _show_event(entry: Entry) -> None:
    body = shapes.dump(shapes.event(entry)["body"])
    render.out(f"{entry.seq:>5}  {render.day(entry.at)}  {entry.kind}  {render.faint(body)}")


def _show_message(said: Message) -> None:
    cut = " (cut off)" if said.partial else ""
    render.out(f"\n{render.strong(said.role)} {render.faint(f'{said.seq} · {render.day(said.at)}{cut}')}")
    for part in said.parts:
        if isinstance(part, Reasoning) and part.text:
            render.out(render.faint(visible(part.text)))
    if said.text:
        render.out(visible(said.text))
    for call in said.tool_calls:
        render.out(render.faint(visible(f"→ {call.name} {call.arguments}")))


@click.command()
@click.argument("query")
@click.option("--session", "ref", metavar="REF", help="Only in this session.")
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="How many at most.")
@face.json_option
def search(*, query: str, ref: str | None, limit: int, as_json: bool) -> None:
    """Find words in everything that was ever said, also in what has been compacted."""
    hits, titles = face.with_app(lambda app: _search(app, query, ref, limit))
    if as_json:
        return render.document({"query": query, "hits": [shapes.hit(hit, titles[hit.session_id]) for hit in hits]})
    if not hits:
        return face.note("nothing found")
    for hit in hits:
        place = f"{hit.session_id} {hit.seq} · {render.day(hit.at)} · {hit.kind}"
        render.out(f"{render.faint(place)}  {visible(titles[hit.session_id] or '')}".rstrip())
        render.out(f"    {render.marked(hit.snippet, hit.marks)}")
    return None


async def _search(app: "App", query: str, ref: str | None, limit: int) -> "tuple[list[Hit], dict[str, str | None]]":
    """The hits and the titles of their sessions. The index is brought up to date first, so that it finds all there is."""
    from holdfast.store.search import Scope

    index = await app.search()
    with render.progress("reading new messages") as update:
        await index.catch_up(update)
    session_id = None if ref is None else await _id_of(app, ref)
    hits = await index.search(query, limit=limit, scope=Scope(session_id=session_id, trashed=session_id is not None))
    titles = await app.database.read(_titles, {hit.session_id for hit in hits})
    return hits, titles


async def _id_of(app: "App", ref: str) -> str:
    found = await app.database.read(store.resolve, ref, trashed=True)
    face.tell_others(ref, found)
    return found.session.id


def _titles(tx: Transaction, ids: set[str]) -> dict[str, str | None]:
    return {session_id: store.get(tx, session_id).summary.title for session_id in ids}
