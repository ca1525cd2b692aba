"""Slash commands that read: lists, messages, search and export."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import format_local_time
from holdfast.interop.export import jsonl as exporting
from holdfast.interop.export.formats import FORMATS, read_rendered
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.sanitize import one_line
from holdfast.model.session import as_message, messages, standing
from holdfast.model.text import counted
from holdfast.slash.context import CommandContext, require_session
from holdfast.slash.format import message_lines, parse_number, session_line
from holdfast.store import atomic_file
from holdfast.store.repos import log, session_list
from holdfast.store.repos import sessions as store

if TYPE_CHECKING:
    from holdfast.store.search.ranked_search import RankedHits

LISTED = 20
HISTORY_MESSAGES = 50
"""Messages that /history shows by default."""
MAX_HITS = 20
SEARCHED_SESSIONS = 10
"""The sessions whose hits are shown."""
HITS_PER_SESSION = 3
"""The hits shown of each session, if all sessions are searched."""
ROLES = ("user", "assistant", "tool")
RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")


async def sessions(context: CommandContext, rest: str) -> None:
    """List the most recent sessions and mark the current one."""
    limit = parse_number(rest, "a number of sessions", LISTED)
    page = await context.engine.services.database.read(
        session_list.list_page, session_list.SessionFilters(), limit=min(limit, 1000)
    )
    lines = [f"{'*' if one.id == context.session_id else ' '} {session_line(one)}" for one in page.sessions]
    more = ["  … more sessions: /sessions NUMBER"] if page.next else []
    context.show("\n".join([*lines, *more]) or "No sessions yet.")


async def show(context: CommandContext, rest: str) -> None:
    """Show one message in full."""
    seq = parse_number(rest, "an event number", 0)
    if not seq:
        raise Invalid("SEQ is missing: use /show SEQ; shortened output names its number")
    await _show_range(context, seq, seq)


async def recall(context: CommandContext, rest: str) -> None:
    """Show messages by their numbers, or search this session, including compacted messages."""
    session_id = require_session(context)
    if not rest:
        raise Invalid("arguments are missing: /recall 10-20 shows those events, /recall WORDS searches this session")
    numbers = RANGE.fullmatch(rest)
    if numbers is not None:
        first = parse_number(numbers[1], "an event number", 0)
        await _show_range(context, first, parse_number(numbers[2] or "", "an event number", first))
    else:
        await _search(context, rest, session_id)


async def _show_range(context: CommandContext, first: int, last: int) -> None:
    entries = await context.engine.services.database.read(log.read, require_session(context), first=first, last=last)
    found = [message_lines(message) for entry in entries if (message := as_message(entry)) is not None]
    if not found:
        where = f"message {first}" if first == last else f"messages {first} to {last}"
        raise NotFound(f"this session has no {where}")
    context.show("\n\n".join(found))


async def history(context: CommandContext, rest: str) -> None:
    """Show the latest messages of this session in full, without rewound ones."""
    limit = parse_number(rest, "a number of messages", HISTORY_MESSAGES)
    _, entries = await context.engine.read(require_session(context))
    said = messages(standing(entries))
    shown = said[-limit:]
    earlier = len(said) - len(shown)
    more = [f"{counted(earlier, 'earlier message')}; show all with /history {len(said)}"] if earlier else []
    context.show("\n\n".join([*more, *map(message_lines, shown)]) or "This session has no messages.")


async def search(context: CommandContext, rest: str) -> None:
    """Search all sessions."""
    role, rest = _take_option(rest, "role")
    tool, rest = _take_option(rest, "tool")
    if role is not None and role not in ROLES:
        raise Invalid(f"unknown role {role!r}; use {', '.join(ROLES)}")
    if not rest:
        raise Invalid("WORDS are missing: use /search [--role ROLE] [--tool NAME] WORDS")
    await _search(context, rest, None, role=role, tool=tool)


def _take_option(rest: str, name: str) -> tuple[str | None, str]:
    """Remove the option `--name VALUE`; returns its value, if it is given, and the rest."""
    found = re.search(rf"(?:^|\s)--{name}[ =](\S+)", rest)
    return (None, rest) if found is None else (found[1], (rest[: found.start()] + rest[found.end() :]).strip())


async def _search(
    context: CommandContext, query: str, session_id: str | None, role: str | None = None, tool: str | None = None
) -> None:
    from holdfast.store.search import ranked_search
    from holdfast.store.search.index import SearchScope

    index = await context.search_index()
    await index.catch_up()
    found = await ranked_search.find(index, query, scope=SearchScope(session_id=session_id, role=role, tool=tool))
    if not found.hits:
        context.show("No matches.")
        return
    titles = await context.engine.services.database.read(store.get_titles, {hit.session_id for hit in found.hits})
    similar = ["Few exact matches; including similar words."] if found.similar else []
    most = HITS_PER_SESSION if session_id is None else MAX_HITS
    context.show("\n".join([*similar, *_hit_lines(found, titles, most)]))


def _hit_lines(found: "RankedHits", titles: Mapping[str, str | None], most: int) -> Iterator[str]:
    """The hits by session, the session with the best hit first; of each session the best few."""
    groups = found.by_session()
    for group in groups[:SEARCHED_SESSIONS]:
        yield f"{group.session_id}  {one_line(titles[group.session_id] or '')}".rstrip()
        for hit in group.hits[:most]:
            yield f"    [{hit.seq}] {format_local_time(hit.at)}  {one_line(hit.snippet)}"
        if group.count > most:
            yield f"    … {group.count - most} more in this session"
    if len(groups) > SEARCHED_SESSIONS:
        yield f"… {counted(len(groups) - SEARCHED_SESSIONS, 'more session')}; add words to narrow the search"


async def export(context: CommandContext, rest: str) -> None:
    """Export the session to a file that only its owner can read."""
    session_id = require_session(context)
    rest, force = _without_force(rest)
    form, _, name = rest.partition(" ")
    if form and form not in FORMATS:
        if rest.isalnum():
            raise Invalid(f"unknown format {rest!r}; use {', '.join(FORMATS)}, or a file name with an extension")
        form, name = "", rest
    form = form or (suffix if (suffix := Path(name).suffix[1:]) in FORMATS else "md")
    path = _target(context.workdir, name.strip() or f"{session_id}.{form}")
    database = context.engine.services.database
    with atomic_file.new_file(path, replace=force) as stream:
        if form == "jsonl":
            async for text in exporting.export_lines(database, session_id):
                stream.write(text)
        else:
            stream.write(await database.read(read_rendered, session_id, form, context.settings.home))
    context.show(f"Exported to {path}.")


def _without_force(rest: str) -> tuple[str, bool]:
    """Remove the option `--force`; returns the rest and whether it was given."""
    kept = re.sub(r"(?:^|\s)--force(?=\s|$)", " ", rest)
    return kept.strip(), kept != rest


def _target(directory: Path, name: str) -> Path:
    return directory / Path(name).expanduser()
