"""Facts that outlive their session: append-only, superseded by corrections, and emptied when a person forgets them.

Writers pass one at a time, so numbers have no gaps and every limit holds. Nothing here decides who may see a fact: the
place of a caller does (`model.memory.owner`).
"""

import json
from collections.abc import Iterator
from typing import cast

import msgspec

from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.memory.fact import (
    MAX_FACTS,
    MAX_PER_TURN,
    MAX_VERSIONS,
    MODEL,
    Fact,
    MemoryScope,
    NewFact,
    clean_fact,
)
from holdfast.model.memory.owner import EVERYBODY, MemoryPlace
from holdfast.store.database import Row, Transaction
from holdfast.store.search.ranking import rank

WRITERS = "memory"
"""The key that all writers lock."""
NEWEST = 2**62
COLUMNS = Fact.__struct_fields__


class FactFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts to list. Without an owner, those of everyone."""

    owner: str | None = None
    scope: MemoryScope | None = None
    project: str = ""
    history: bool = False
    """Whether to include superseded and forgotten versions."""


def add(tx: Transaction, new: NewFact, *, seq: int, at: int) -> Fact:
    """Save a fact, or return the current one with the same text and scope, which then is the correction, too.

    Raises Invalid beyond a limit, NotFound for a version that the place does not have, and Conflict for one that was
    corrected to another text meanwhile: then nothing was written.
    """
    number = _count(tx, "memory.next_number", key=WRITERS)
    before = None if new.replaces is None else _replaceable(tx, new, new.replaces)
    scope, owner, project = _where(new, before)
    text = clean_fact(new.text)
    same = _one(tx, "memory.find_text", owner=owner, scope=scope, project=project, text=text)
    if before is not None and before.replaced_by is not None:
        return _same_correction(before, same)
    if same is not None:
        if before is not None and before.number != same.number:
            _supersede(tx, before, same.number)
        return same
    _check_limits(tx, new, before, (owner, scope, project))
    fact = Fact(
        number=number,
        first=number if before is None else before.first,
        owner=owner,
        scope=scope,
        project=project,
        text=text,
        author=new.author,
        session_id=new.session_id,
        turn_id=new.turn_id,
        call_id=new.call_id,
        seq=seq,
        sources=new.sources,
        at=at,
    )
    tx.run("memory.add", **_parameters(fact))
    if before is not None:
        _supersede(tx, before, number)
    return fact


def check(tx: Transaction, new: NewFact) -> None:
    """Raise what `add` raises for the text, the scope or the version to correct. Writes nothing."""
    _where(new, None if new.replaces is None else _replaceable(tx, new, new.replaces))
    clean_fact(new.text)


def _same_correction(before: Fact, same: Fact | None) -> Fact:
    """The fact that has superseded this one, if it says the same as the correction. Raises Conflict."""
    if same is not None and same.number == before.replaced_by:
        return same
    raise Conflict(
        f"{before.id} was corrected meanwhile: fact-{before.replaced_by} is the newer version; "
        "look at it, and correct that one if it is still wrong"
    )


def _supersede(tx: Transaction, before: Fact, number: int) -> None:
    replaced = tx.one("memory.replace", number=number, before=before.number)
    assert replaced is not None, "writers pass one at a time"


def _where(new: NewFact, before: Fact | None) -> tuple[MemoryScope, str, str]:
    """The scope, the owner and the project of a new version. Raises Invalid for a scope that the place does not have."""
    if before is not None:
        return before.scope, before.owner, before.project
    if new.scope == "global":
        return "global", EVERYBODY, ""
    if not new.place.owner:
        raise Invalid("a fact needs an owner")
    if new.scope == "project" and not new.place.project:
        raise Invalid("there is no project here, so a fact cannot have the scope project; use the scope user")
    return new.scope, new.place.owner, new.place.project if new.scope == "project" else ""


def _replaceable(tx: Transaction, new: NewFact, number: int) -> Fact:
    """The version to correct. Raises NotFound."""
    before = get(tx, number)
    if before is None or before.forgotten_at is not None or not is_visible(before, new.place):
        raise NotFound(f"there is no fact-{number} in this memory")
    return before


def _check_limits(tx: Transaction, new: NewFact, before: Fact | None, where: tuple[str, str, str]) -> None:
    owner, scope, project = where
    if new.author == MODEL and _count(tx, "memory.count_of_turn", of=new.session_id, turn=new.turn_id) >= MAX_PER_TURN:
        raise Invalid(f"this turn has saved {MAX_PER_TURN} facts, which is the limit of a turn")
    if before is not None:
        if _count(tx, "memory.count_versions", first=before.first) >= MAX_VERSIONS:
            raise Invalid(f"{before.id} has {MAX_VERSIONS} versions, which is the limit; forget it and add it again")
    elif _count(tx, "memory.count_current", owner=owner, scope=scope, project=project) >= MAX_FACTS:
        raise Invalid(
            f"the memory with the scope {scope} has {MAX_FACTS} facts, which is the limit; "
            "correct or forget some of them first"
        )


def correct(tx: Transaction, number: int, text: str, *, by: str, at: int) -> Fact:
    """Save a new version of a fact for a person who may change it. Raises as `add`."""
    before = require(tx, number)
    place = MemoryPlace(before.owner, before.project)
    new = NewFact(place=place, scope=before.scope, text=text, author=by, replaces=number)
    return add(tx, new, seq=0, at=at)


def forget(tx: Transaction, number: int, *, by: str, at: int) -> int:
    """Remove the text of a fact in all its versions; returns how many had one. Who did it, and when, stays.

    Raises NotFound if there is no such fact, or it was already forgotten.
    """
    _count(tx, "memory.next_number", key=WRITERS)
    fact = require(tx, number)
    if fact.forgotten_at is not None:
        raise NotFound(f"{fact.id} was already forgotten")
    return tx.count("memory.forget", first=fact.first, at=at, person_name=by, key=WRITERS)


def get(tx: Transaction, number: int) -> Fact | None:
    return _one(tx, "memory.get", number=number)


def require(tx: Transaction, number: int) -> Fact:
    """The fact. Raises NotFound."""
    fact = get(tx, number)
    if fact is None:
        raise NotFound(f"there is no fact-{number}")
    return fact


def get_by_call(tx: Transaction, session_id: str, turn_id: str, call_id: str) -> Fact | None:
    """The fact that a tool call has saved."""
    return _one(tx, "memory.get_by_call", of=session_id, turn=turn_id, call=call_id)


def list_visible(tx: Transaction, place: MemoryPlace) -> list[Fact]:
    """The current facts of the place, oldest first."""
    return [_fact(row) for row in tx.all("memory.list_visible", owner=place.owner, project=place.project)]


def is_visible(fact: Fact, place: MemoryPlace) -> bool:
    """Whether the place has the fact. Only its current version is told to a model."""
    if fact.owner == EVERYBODY:
        return True
    return fact.owner == place.owner and fact.project in ("", place.project)


def list_versions(tx: Transaction, first: int) -> list[Fact]:
    """All versions of a fact, oldest first."""
    return [_fact(row) for row in tx.all("memory.list_versions", first=first)]


def list_page(tx: Transaction, wanted: FactFilter, *, before: int = NEWEST, limit: int) -> list[Fact]:
    """The newest facts before a number."""
    rows = tx.all(
        "memory.list_page",
        owner=wanted.owner or "",
        everyone=int(wanted.owner is None),
        scope=wanted.scope or "",
        project=wanted.project,
        history=int(wanted.history),
        before=before,
        limit=limit,
    )
    return [_fact(row) for row in rows]


def iterate(tx: Transaction, wanted: FactFilter, page: int = 500) -> Iterator[Fact]:
    """All facts, newest first."""
    before = NEWEST
    while found := list_page(tx, wanted, before=before, limit=page):
        yield from found
        before = found[-1].number


def search(tx: Transaction, wanted: FactFilter, query: str, *, limit: int) -> list[Fact]:
    """The facts that share words with the query, the best first."""
    facts = list(iterate(tx, wanted))[::-1]
    return [facts[index] for _, index in rank([fact.text for fact in facts], query)[:limit]]


def _parameters(fact: Fact) -> dict[str, str | int]:
    given = msgspec.structs.asdict(fact)
    for name in ("replaced_by", "forgotten_at", "forgotten_by"):
        del given[name]
    names = {"of": given.pop("session_id"), "turn": given.pop("turn_id"), "call": given.pop("call_id")}
    return given | names | {"sources": json.dumps(fact.sources)}


def _one(tx: Transaction, query: str, **params: str | int) -> Fact | None:
    row = tx.one(query, **params)
    return None if row is None else _fact(row)


def _fact(row: Row) -> Fact:
    given = dict(zip(COLUMNS, row, strict=True))
    given["sources"] = tuple(json.loads(cast("str", given["sources"])))  # type: ignore[assignment]
    return Fact(**given)  # type: ignore[arg-type] # the schema checks the types


def _count(tx: Transaction, query: str, **params: str | int) -> int:
    row = tx.one(query, **params)
    assert row is not None, "an aggregate is always there"
    return cast("int", row[0])
