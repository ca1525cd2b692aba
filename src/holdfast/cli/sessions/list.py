"""`holdfast sessions list` and `show`, and the table of the other `sessions` commands."""

from collections.abc import Sequence
from typing import get_args

import click
import msgspec

from holdfast.cli import context, render
from holdfast.cli.parsing.groups import LazyGroup
from holdfast.cli.parsing.session_ref import REF
from holdfast.clock import format_local_time
from holdfast.interop import session_tree
from holdfast.interop.documents.sessions import (
    EventItem,
    MessageItem,
    SessionDetailResponse,
    SessionListResponse,
)
from holdfast.interop.serialization import dump
from holdfast.interop.session_tree import TreeNode
from holdfast.model.entry import Entry
from holdfast.model.event import Source
from holdfast.model.goal import Goal, describe_goal
from holdfast.model.message import Message, Reasoning
from holdfast.model.plan import PlanItem, checklist
from holdfast.model.sanitize import visible
from holdfast.model.session import Session, State, messages
from holdfast.model.text import counted
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, goals, log, plans, session_list

PAGE = 50
MOST = 1_000
"""The largest page; `--all` lists more."""

COMMANDS = {
    "list": "sessions.list:list_",
    "show": "sessions.list:show",
    "search": "sessions.search:search",
    "rename": "sessions.edit:rename",
    "pin": "sessions.edit:pin",
    "mode": "sessions.edit:mode",
    "rewind": "sessions.rewind:rewind",
    "export": "sessions.export:export",
    "import": "sessions.import_:import_",
    "share": "sessions.share:share",
    "unshare": "sessions.share:unshare",
    "fork": "sessions.edit:fork",
    "end": "sessions.edit:end",
    "reopen": "sessions.edit:reopen",
    "delete": "sessions.trash:delete",
    "restore": "sessions.trash:restore",
    "prune": "sessions.trash:prune",
    "verify": "sessions.verify:verify",
    "stats": "sessions.stats:stats",
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def sessions() -> None:
    """List, show, search, change and verify sessions.

    REF is a session id, a unique prefix of it (at least 6 characters), an alias, or an exact title.
    """


@click.command("list")
@click.option(
    "--all", "everything", is_flag=True, help="List every session, including the trash and auxiliary requests."
)
@click.option("--limit", type=click.IntRange(1, MOST), default=PAGE, show_default=True, help="List at most this many.")
@click.option("--cursor", help="Continue after this cursor of the previous page.")
@click.option("--source", type=click.Choice(get_args(Source)), help="List only sessions from this source.")
@click.option("--state", type=click.Choice(get_args(State)), help="List only sessions in this state.")
@click.option("--channel", help="List only sessions of this channel.")
@click.option("--model", help="List only sessions with this model.")
@click.option("--pinned", is_flag=True, help="List only pinned sessions.")
@click.option("--trash", is_flag=True, help="List only sessions in the trash.")
@click.option("--sides", is_flag=True, help="Include auxiliary requests (for example titles).")
@click.option("--children", is_flag=True, help="Include the sessions of sub-agents.")
@click.option("--tree", is_flag=True, help="Show the sessions of sub-agents below those that delegated to them.")
@context.json_option
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
    children: bool,
    tree: bool,
    as_json: bool,
) -> None:
    """List sessions, most recent activity first."""
    if everything and cursor:
        raise click.UsageError("--all and --cursor cannot be used together")
    if tree and children:
        raise click.UsageError("--tree and --children cannot be used together")
    filters = session_list.SessionFilters(
        source=source,
        state=state,
        channel=channel,
        model=model,
        pinned=1 if pinned else None,
        trashed=1 if trash else 2 if everything else 0,
        sides=int(sides or everything),
        children=int(children or (everything and not tree)),
    )
    found = context.read_current(
        lambda tx: _read_list(
            tx,
            _all(tx, filters) if everything else session_list.list_page(tx, filters, limit=limit, cursor=cursor),
            tree=tree,
        ),
        lambda found: (node.session for node in found.nodes),
    )
    if as_json:
        shown = session_list.SessionPage([node.session for node in found.nodes], found.next)
        return render.print_json(SessionListResponse.from_page(shown, found.children))
    return _table(found)


class ListedSessions(msgspec.Struct, frozen=True):
    """A page of sessions, or of trees of them."""

    nodes: list[TreeNode]
    children: dict[str, list[str]]
    next: str | None


def _read_list(tx: Transaction, page: session_list.SessionPage, *, tree: bool) -> ListedSessions:
    nodes = session_tree.list_descendants(tx, page.sessions) if tree else [TreeNode(one) for one in page.sessions]
    return ListedSessions(nodes, delegations.map_child_ids(tx, [node.session for node in nodes]), page.next)


def _all(tx: Transaction, filters: session_list.SessionFilters) -> session_list.SessionPage:
    """Every page, on one snapshot, so that no session is missed or listed twice."""
    page = session_list.list_page(tx, filters, limit=MOST)
    found = page.sessions
    while page.next is not None:
        page = session_list.list_page(tx, filters, limit=MOST, cursor=page.next)
        found += page.sessions
    return session_list.SessionPage(found, None)


def _table(page: ListedSessions) -> None:
    if not page.nodes:
        return context.note("no sessions")
    columns = ("id", "state", "source", "messages", "last activity", "title")
    branches = session_tree.draw_branches([node.depth for node in page.nodes])
    rows = [_row(branch, node.session) for branch, node in zip(branches, page.nodes, strict=True)]
    render.print_table(columns, rows, stretch=5)
    if page.next is not None:
        context.note(f"more sessions: add --cursor {page.next}")
    return None


def _row(branch: str, one: Session) -> tuple[str, ...]:
    summary = one.summary
    marks = ("pinned " if summary.pinned else "") + ("in trash " if summary.trashed_at is not None else "")
    title = summary.title or (f"({summary.preview})" if summary.preview else "")
    state = one.state if not marks else f"{one.state} ({marks.strip()})"
    return (
        branch + one.id,
        state,
        summary.source,
        str(summary.message_count),
        format_local_time(summary.updated_at),
        title,
    )


@click.command()
@click.argument("ref", type=REF)
@click.option("--events", is_flag=True, help="Show every event of the log instead of the messages.")
@context.json_option
def show(*, ref: str, events: bool, as_json: bool) -> None:
    """Show a session after verifying its event count and hashes."""
    session, entries, plan, children, goal = context.read_one(ref, _read_shown)
    if as_json:
        content = (
            {"events": [EventItem.from_entry(entry) for entry in entries]}
            if events
            else {"messages": [MessageItem.from_message(said) for said in messages(entries)]}
        )
        described = SessionDetailResponse.describe(session, plan, children, goal)
        return render.print_json(msgspec.structs.asdict(described) | content)
    _show_session(session, children)
    if goal is not None:
        render.print_text(visible(f"Goal: {goal.text}\nThe goal is {describe_goal(goal)}"))
    if plan:
        render.print_text(visible(checklist(plan)))
    for entry in entries if events else ():
        _show_event(entry)
    for said in () if events else messages(entries):
        _show_message(said)
    return None


def _read_shown(
    tx: Transaction, found: Session
) -> tuple[Session, list[Entry], tuple[PlanItem, ...], list[str], Goal | None]:
    children = delegations.list_child_ids(tx, found.id)
    goal = goals.get(tx, found.id) if found.summary.goal else None
    return found, log.read_complete(tx, found), plans.current(tx, found.id), children, goal


def _show_session(session: Session, children: Sequence[str]) -> None:
    summary = session.summary
    render.print_text(render.bold(visible(session.display_title)))
    facts = [session.id, session.state, summary.model, counted(summary.message_count, "message"), f"seq {session.seq}"]
    if summary.trashed_at is not None:
        facts.append("in the trash")
    if session.delegated_by is not None:
        facts.append(f"sub-agent of {session.delegated_by}")
    if children:
        facts.append(counted(len(children), "sub-agent"))
    render.print_text(render.dim(visible(" · ".join(fact for fact in facts if fact))))


def _show_event(entry: Entry) -> None:
    body = dump(entry.event)
    render.print_text(f"{entry.seq:>5}  {format_local_time(entry.at)}  {entry.kind}  {render.dim(body)}")


def _show_message(said: Message) -> None:
    cut = " (cut off)" if said.partial else ""
    render.print_text(f"\n{render.bold(said.role)} {render.dim(f'{said.seq} · {format_local_time(said.at)}{cut}')}")
    for part in said.parts:
        if isinstance(part, Reasoning) and part.text:
            render.print_text(render.dim(visible(part.text)))
    if said.text:
        render.print_text(visible(said.text))
    for call in said.tool_calls:
        render.print_text(render.dim(visible(f"→ {call.name} {call.arguments}")))
