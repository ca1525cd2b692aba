"""Commands that read: lists, single messages, what was said long ago, and copies for elsewhere."""

import re
from pathlib import Path

from holdfast.interop import export as exporting
from holdfast.interop import people
from holdfast.interop.visible import one_line
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.session import as_message
from holdfast.slash.lines import day, message_lines, number, session_line
from holdfast.slash.seat import Seat, session_of
from holdfast.store import log, private
from holdfast.store import sessions as store
from holdfast.store.database import Transaction

LISTED = 20
FOUND = 20
FORMATS = ("md", "html", "jsonl")
RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")


async def sessions(seat: Seat, rest: str) -> None:
    """The sessions used last; the current one is marked."""
    limit = number(rest, "a number of sessions", LISTED)
    page = await seat.engine.ground.database.read(store.list_page, store.Filters(), limit=min(limit, 1000))
    lines = [f"{'*' if one.id == seat.session_id else ' '} {session_line(one)}" for one in page.sessions]
    more = ["  … and more; /sessions NUMBER lists more of them"] if page.next else []
    seat.tell("\n".join([*lines, *more]) or "There are no sessions yet.")


async def show(seat: Seat, rest: str) -> None:
    """One message, whole."""
    seq = number(rest, "the number of an event", 0)
    if not seq:
        raise Invalid("say which: /show SEQ; the number stands beside what was shown in short")
    await _show_range(seat, seq, seq)


async def recall(seat: Seat, rest: str) -> None:
    """Messages by their numbers, or the places where words occur in this session, compacted or not."""
    session_id = session_of(seat)
    if not rest:
        raise Invalid("say what: /recall 10-20 reads those events, /recall WORDS finds them in this session")
    place = RANGE.fullmatch(rest)
    if place is not None:
        await _show_range(seat, int(place[1]), int(place[2] or place[1]))
    else:
        await _search(seat, rest, session_id)


async def _show_range(seat: Seat, first: int, last: int) -> None:
    entries = await seat.engine.ground.database.read(log.read, session_of(seat), first=first, last=last)
    found = [message_lines(message) for entry in entries if (message := as_message(entry)) is not None]
    if not found:
        raise NotFound(f"no message of this session stands at {first if first == last else f'{first} to {last}'}")
    seat.tell("\n\n".join(found))


async def search(seat: Seat, rest: str) -> None:
    """Words in any session."""
    if not rest:
        raise Invalid("say what to look for: /search WORDS")
    await _search(seat, rest, None)


async def _search(seat: Seat, words: str, session_id: str | None) -> None:
    from holdfast.store.search import Scope

    index = await seat.index()
    await index.catch_up()
    hits = await index.search(words, limit=FOUND, scope=Scope(session_id=session_id))
    if not hits:
        seat.tell("Nothing was found.")
        return
    titles = await seat.engine.ground.database.read(_titles, {hit.session_id for hit in hits})
    lines = [
        f"{hit.session_id} [{hit.seq}] {day(hit.at)}  {one_line(titles[hit.session_id])}\n    {one_line(hit.snippet)}"
        for hit in hits
    ]
    seat.tell("\n".join(lines))


def _titles(tx: Transaction, ids: set[str]) -> dict[str, str]:
    return {one: store.get(tx, one).summary.title or "" for one in ids}


async def export(seat: Seat, rest: str) -> None:
    """Write the session to a file that only its owner can read."""
    session_id = session_of(seat)
    form, _, name = rest.partition(" ")
    if form and form not in FORMATS:
        if rest.isalnum():
            raise Invalid(f"there is no format {rest!r}; there are {', '.join(FORMATS)}. A file's name has a dot in it")
        form, name = "", rest
    form = form or (suffix if (suffix := Path(name).suffix[1:]) in FORMATS else "md")
    path = _target(seat.workdir, name.strip() or f"{session_id}.{form}")
    database = seat.engine.ground.database
    with private.new_file(path) as stream:
        if form == "jsonl":
            async for text in exporting.jsonl(database, session_id):
                stream.write(text)
        else:
            stream.write(await database.read(_for_people, session_id, form))
    seat.tell(f"Written to {path}.")


def _target(folder: Path, name: str) -> Path:
    return folder / Path(name).expanduser()


def _for_people(tx: Transaction, session_id: str, form: str) -> str:
    session = store.get(tx, session_id)
    entries = log.read_whole(tx, session)
    return people.markdown(session, entries) if form == "md" else people.page(session, entries)
