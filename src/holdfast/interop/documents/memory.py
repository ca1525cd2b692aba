"""Remembered facts."""

from collections.abc import Sequence
from typing import Self

from holdfast.interop.serialization import Document, format_time
from holdfast.model.memory.fact import MODEL, Fact
from holdfast.model.memory.owner import EVERYBODY, LOCAL_OWNER


class FactItem(Document, frozen=True):
    """One version of a fact. `owner` is null for facts of everybody; `text` is empty once it is forgotten."""

    id: str
    first: str
    """The id of its first version."""
    scope: str
    owner: str | None
    project: str | None
    text: str
    state: str
    """`current`, `superseded` or `forgotten`."""
    author: str
    """`model`, or the person who wrote it."""
    session_id: str | None
    seq: int | None
    """The event that saved it."""
    sources: list[str]
    """Content from outside that the model had in its context."""
    at: str | None
    replaced_by: str | None
    forgotten_at: str | None
    forgotten_by: str | None

    @classmethod
    def from_fact(cls, fact: Fact) -> Self:
        return cls(
            id=fact.id,
            first=f"fact-{fact.first}",
            scope=fact.scope,
            owner=None if fact.owner == EVERYBODY else fact.owner,
            project=fact.project or None,
            text=fact.text,
            state=fact.state,
            author=fact.author,
            session_id=fact.session_id or None,
            seq=fact.seq or None,
            sources=list(fact.sources),
            at=format_time(fact.at),
            replaced_by=None if fact.replaced_by is None else f"fact-{fact.replaced_by}",
            forgotten_at=format_time(fact.forgotten_at),
            forgotten_by=fact.forgotten_by or None,
        )


class FactListResponse(Document, frozen=True):
    """`next` is the cursor of the next page."""

    facts: list[FactItem]
    next: str | None

    @classmethod
    def from_page(cls, facts: Sequence[Fact], *, has_more: bool = False) -> Self:
        return cls([FactItem.from_fact(fact) for fact in facts], facts[-1].id if has_more else None)


class FactDetailResponse(Document, frozen=True):
    """A fact with all its versions, oldest first."""

    fact: FactItem
    versions: list[FactItem]

    @classmethod
    def from_versions(cls, number: int, versions: Sequence[Fact]) -> Self:
        items = [FactItem.from_fact(fact) for fact in versions]
        return cls(next(item for item in items if item.id == f"fact-{number}"), items)


class ForgottenResponse(Document, frozen=True):
    """How many versions were forgotten."""

    id: str
    versions: int


def describe_source(fact: Fact) -> str:
    """Who saved it, where, and what from outside the model had read, for people."""
    if fact.author != MODEL:
        return f"by {fact.author}"
    where = f"session {fact.session_id}, event {fact.seq}"
    return f"{where}; unverified: after {', '.join(fact.sources)}" if fact.sources else where


def describe_place(fact: Fact) -> str:
    """Whose fact it is, for people."""
    if fact.scope == "project":
        return f"project {fact.project}"
    return fact.scope


def describe_owned_place(fact: Fact) -> str:
    """The same where the facts of several people are shown."""
    where = describe_place(fact)
    return where if fact.owner in ("", LOCAL_OWNER) else f"{where} of {fact.owner}"
