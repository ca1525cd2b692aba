"""/memory: the facts that this person's sessions have remembered, and how to change them."""

from collections.abc import Awaitable, Callable, Sequence

from holdfast.clock import format_local_time
from holdfast.interop.documents.memory import FactItem, describe_place, describe_source
from holdfast.interop.serialization import dump
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.memory.fact import Fact, NewFact, parse_fact_id
from holdfast.model.memory.owner import EVERYBODY, LOCAL_OWNER, MemoryPlace
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.slash.context import CommandContext, acting_user
from holdfast.store.database import Transaction
from holdfast.store.repos import memory as facts
from holdfast.store.repos.memory import FactFilter

SHOWN = 50
OFF = "memory is off in this chat, because other people may read it; use a direct chat"


async def memory(context: CommandContext, rest: str) -> None:
    """List the facts, search them, or do one of the actions."""
    if not context.memory_owner:
        raise Invalid(OFF)
    word, _, argument = rest.partition(" ")
    action, argument = ACTIONS.get(word), argument.strip()
    if action is not None:
        if not argument and word != "export":
            raise Invalid(f"use /memory {word} {USAGE[word]}")
        await action(context, argument)
        return
    await _list(context, rest)


async def _list(context: CommandContext, query: str) -> None:
    wanted, database = FactFilter(owner=context.memory_owner), context.engine.services.database
    if query:
        found = await database.read(facts.search, wanted, query, limit=SHOWN)
        context.show(_lines(found) or f"No fact matches {query!r}.")
        return
    found = await database.read(facts.list_page, wanted, limit=SHOWN + 1)
    more = "\n… older ones: /memory WORDS searches all" if len(found) > SHOWN else ""
    context.show((_lines(found[:SHOWN]) or "No facts yet. Ask the model to remember something.") + more)


def _lines(found: Sequence[Fact]) -> str:
    return "\n".join(f"{fact.id}  {one_line(fact.text)}  [{_origin(fact)}]" for fact in found)


def _origin(fact: Fact) -> str:
    return one_line(f"{describe_place(fact)}; {format_local_time(fact.at)[:10]}; {describe_source(fact)}")


async def _own(context: CommandContext, ref: str, *, changes: bool) -> Fact:
    """A fact that this person may see. Raises NotFound, also for one of somebody else, and Invalid."""
    number = parse_fact_id(ref)
    fact = await context.engine.services.database.read(facts.get, number)
    if fact is None or fact.owner not in (EVERYBODY, context.memory_owner):
        raise NotFound(f"there is no fact-{number}; /memory lists your facts")
    if changes and fact.owner == EVERYBODY and context.memory_owner != LOCAL_OWNER:
        raise Invalid(f"{fact.id} is for every user; only the owner of this installation can change it")
    return fact


async def _show(context: CommandContext, ref: str) -> None:
    fact = await _own(context, ref, changes=False)
    versions = await context.engine.services.database.read(facts.list_versions, fact.first)
    context.show("\n".join(_version(one) for one in versions))


def _version(fact: Fact) -> str:
    if fact.forgotten_at is not None:
        return f"{fact.id}  (forgotten {format_local_time(fact.forgotten_at)} by {one_line(fact.forgotten_by)})"
    state = "" if fact.is_current else f"; corrected by fact-{fact.replaced_by}"
    return f"{fact.id}  {one_line(fact.text)}  [{_origin(fact)}{state}]"


async def _add(context: CommandContext, text: str) -> None:
    new = NewFact(place=MemoryPlace(context.memory_owner), scope="user", text=text, author=acting_user(context))
    fact = await _write(context, lambda tx, at: facts.add(tx, new, seq=0, at=at))
    context.show(f"Saved as {fact.id}.")


async def _correct(context: CommandContext, argument: str) -> None:
    ref, _, text = argument.partition(" ")
    before = await _own(context, ref, changes=True)
    by = acting_user(context)
    fact = await _write(context, lambda tx, at: facts.correct(tx, before.number, text, by=by, at=at))
    context.show(f"{fact.id} replaces {before.id}.")


async def _forget(context: CommandContext, ref: str) -> None:
    fact = await _own(context, ref, changes=True)
    services = context.engine.services
    count = await services.database.write(facts.forget, fact.number, by=acting_user(context), at=services.clock.now())
    context.show(
        f"Forgot {fact.id} ({counted(count, 'version')}). The log of the session that saved it keeps the call."
    )


async def _export(context: CommandContext, _: str) -> None:
    """Show the facts as JSON lines, oldest first."""
    wanted = FactFilter(owner=context.memory_owner)
    found = await context.engine.services.database.read(lambda tx: list(facts.iterate(tx, wanted))[::-1])
    context.show("\n".join(dump(FactItem.from_fact(fact)) for fact in found) or "No facts yet.")


async def _write(context: CommandContext, work: Callable[[Transaction, int], Fact]) -> Fact:
    services = context.engine.services
    at = services.clock.now()
    return await services.database.write(lambda tx: work(tx, at))


ACTIONS: dict[str, Callable[[CommandContext, str], Awaitable[None]]] = {
    "show": _show,
    "add": _add,
    "correct": _correct,
    "forget": _forget,
    "export": _export,
}
USAGE = {"show": "ID", "add": "TEXT", "correct": "ID TEXT", "forget": "ID"}
