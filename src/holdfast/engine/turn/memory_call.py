"""Tool calls that remember a fact for later sessions, or look for remembered ones.

A fact is saved in the transaction that records it in the session's log, so that each cites the other. A call that another
worker repeats finds its fact by the session, the turn and the call.
"""

import asyncio
from collections.abc import Callable

import msgspec

from holdfast.engine import outbound
from holdfast.engine.context.system_notes import NOTE_PREFIX
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.model.delegation import delegation_of
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, FactRemembered, UserSaid
from holdfast.model.memory.fact import MODEL, Fact, FactRequest, NewFact
from holdfast.model.memory.owner import EVERYBODY, LOCAL_OWNER, MemoryPlace, owner_of
from holdfast.model.message import File, Image, Text, ToolCall, ToolResult
from holdfast.model.session import collapse_line
from holdfast.store.database import Transaction
from holdfast.store.repos import memory, sessions
from holdfast.store.search.ranking import rank

TOOLS = ("remember", "recall_memory")
"""The tools that need a memory."""
HARMLESS = {*TOOLS, "todo"}
"""Tools whose results contain nothing from outside."""
NOTES = {f"[{NOTE_PREFIX}: background process": "terminal", f"[{NOTE_PREFIX}: the task": "delegate"}
"""The beginnings of notes with content from outside, and the tools that it comes from."""
MAX_SOURCES = 10
MAX_NAME = 64
MAX_FOUND = 30
OFF = (
    "memory is off in this conversation: other people may read it, or it is not clear whose it is. Tell the user so; "
    "'holdfast memory' shows and changes facts"
)


class MemorySettings(msgspec.Struct, frozen=True):
    """The memory of a session. `project` returns the root directory of its project; empty if it has none."""

    project: Callable[[], str]


def memory_owner(active: ActiveSession, turn_id: str) -> str:
    """Whose facts the turn may use; empty for nobody's. A turn without a message is for who wrote the last one."""
    link = delegation_of(active.session, active.opened)
    said = _messages(outbound.of_turn(active.entries, turn_id))
    if not said and active.context.last_said is not None:
        said = [active.context.last_said]
    return owner_of(active.session.summary.source, link, said, client=active.turn.terms.client)


def _messages(events: list[Event]) -> list[UserSaid]:
    return [event for event in events if isinstance(event, UserSaid)]


async def remember(
    active: ActiveSession, call: ToolCall, settings: MemorySettings | None, request: FactRequest
) -> Fact:
    """Save the fact of the call, unless it is saved. Raises Invalid, NotFound or Conflict, with text for the model."""
    turn_id = active.turn.id
    assert turn_id is not None, "calls belong to a turn"
    database, place = active.services.database, await _place(active, turn_id, settings)
    known = await database.read(memory.get_by_call, active.id, turn_id, call.id)
    if known is not None:
        return known
    new = msgspec.structs.replace(
        await _checked(active, place, request),
        session_id=active.id,
        turn_id=turn_id,
        call_id=call.id,
        sources=find_sources(active),
    )
    event = FactRemembered(
        turn_id=turn_id, call_id=call.id, scope=new.scope, replaces=new.replaces or 0, sources=new.sources
    )
    saved: list[Fact] = []
    at = active.services.clock.now()

    def save(tx: Transaction) -> None:
        # The event is the last one of the log in this transaction.
        saved[:] = [memory.add(tx, new, seq=sessions.get(tx, active.id).seq, at=at)]

    await active.commit([event], save)
    return saved[0]


async def check_fact(active: ActiveSession, settings: MemorySettings | None, request: FactRequest) -> None:
    """Raise Invalid or NotFound, with text for the model, for a fact that would be refused even if a person approved it."""
    assert active.turn.id is not None, "calls belong to a turn"
    await _checked(active, await _place(active, active.turn.id, settings), request)


async def _checked(active: ActiveSession, place: MemoryPlace, request: FactRequest) -> NewFact:
    """The fact to save. Raises Invalid or NotFound."""
    new = NewFact(place=place, scope=request.scope, text=request.text, author=MODEL, replaces=request.replaces)
    await active.services.database.read(_check, new)
    return new


def _check(tx: Transaction, new: NewFact) -> None:
    _check_scope(tx, new)
    memory.check(tx, new)


def _check_scope(tx: Transaction, new: NewFact) -> None:
    """Raise Invalid for a fact that everybody would be told: only the local user's sessions can ask for approval of it."""
    if new.scope == "global" and new.place.owner != LOCAL_OWNER:
        raise Invalid("only the owner of this installation can save facts with the scope global; use the scope user")
    if new.replaces is None:
        return
    before = memory.get(tx, new.replaces)
    if before is not None and before.owner == EVERYBODY:
        raise Invalid(
            f"{before.id} has the scope global, which applies to every user, so only the owner of this installation can "
            f"correct it: /memory correct {before.id} TEXT"
        )


async def find_facts(active: ActiveSession, settings: MemorySettings | None, query: str) -> list[Fact]:
    """The facts that this turn may use and that share words with the query, the best first. Raises Invalid."""
    assert active.turn.id is not None, "calls belong to a turn"
    place = await _place(active, active.turn.id, settings)
    facts = await active.services.database.read(memory.list_visible, place)
    return [facts[index] for _, index in rank([fact.text for fact in facts], query)[:MAX_FOUND]]


async def _place(active: ActiveSession, turn_id: str, settings: MemorySettings | None) -> MemoryPlace:
    owner = "" if settings is None else memory_owner(active, turn_id)
    if settings is None or not owner:
        raise Invalid(OFF)
    return MemoryPlace(owner, await asyncio.to_thread(settings.project))


def find_sources(active: ActiveSession) -> tuple[str, ...]:
    """What the model has in its context that the user did not write: results of tools, attachments, a summary of them.

    The task of a sub-agent is such content, too: another model wrote it, from what it had read.
    """
    names: dict[str, str] = {}
    found: dict[str, None] = {} if active.context.compaction is None else {"a summary of earlier messages": None}
    if active.session.delegated_by is not None:
        found["delegate"] = None
    for message in active.context.view:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = collapse_line(part.name)[:MAX_NAME]
            elif isinstance(part, ToolResult):
                found[names.get(part.call_id, "a tool")] = None
            elif isinstance(part, File | Image):
                found["an attachment"] = None
            elif isinstance(part, Text):
                found |= {name: None for start, name in NOTES.items() if part.text.startswith(start)}
    return tuple(sorted(name for name in found if name not in HARMLESS))[:MAX_SOURCES]
