"""Facts that a session remembers for later sessions. Pure.

A fact is never overwritten: a correction is a new version, and the earlier one stays until a person forgets the fact.
"""

import json
import re
from typing import Literal, get_args

import msgspec

from holdfast.model.errors import Invalid, NotFound
from holdfast.model.memory.owner import MemoryPlace
from holdfast.model.session import collapse_line
from holdfast.model.times import iso

MemoryScope = Literal["user", "project", "global"]
SCOPES: tuple[MemoryScope, ...] = get_args(MemoryScope)
MODEL = "model"
"""`Fact.author` of a fact that a model's call has saved."""
MAX_FACT = 1_000
"""Characters of one fact."""
MAX_FACTS = 300
"""Current facts of one scope: of one person, of one person in one project, or global."""
MAX_VERSIONS = 100
"""Versions of one fact."""
MAX_PER_TURN = 20
"""Facts that one turn may save, so that text from elsewhere cannot make a model fill the memory."""
FACT_ID = re.compile(r"(?:fact-)?(?P<number>[0-9]{1,15})", re.ASCII)


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table, in the order of its columns."""

    number: int
    first: int
    """The number of its first version."""
    owner: str
    scope: MemoryScope
    project: str
    """The root directory of the project, for the scope `project`."""
    text: str
    author: str
    """`model`, or the person who wrote it."""
    session_id: str
    turn_id: str
    call_id: str
    seq: int
    """The event that saved it; 0 if no session did."""
    sources: tuple[str, ...]
    """Tools whose results, and other content from outside, the model had read when it saved the fact."""
    at: int
    replaced_by: int | None = None
    forgotten_at: int | None = None
    forgotten_by: str = ""

    @property
    def id(self) -> str:
        return f"fact-{self.number}"

    @property
    def is_current(self) -> bool:
        return self.replaced_by is None and self.forgotten_at is None

    @property
    def state(self) -> Literal["current", "superseded", "forgotten"]:
        if self.forgotten_at is not None:
            return "forgotten"
        return "current" if self.replaced_by is None else "superseded"


class NewFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact to save. `replaces` is the number of the version that it corrects, whose scope it then has."""

    place: MemoryPlace
    scope: MemoryScope
    text: str
    author: str
    replaces: int | None = None
    session_id: str = ""
    turn_id: str = ""
    call_id: str = ""
    sources: tuple[str, ...] = ()


class FactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool call asks to remember."""

    text: str
    scope: MemoryScope = "user"
    replaces: int | None = None


def clean_fact(text: str) -> str:
    """The fact on one line. Raises Invalid for an empty or too long one."""
    line = collapse_line(text)
    if not line:
        raise Invalid("the fact has no text")
    if len(line) > MAX_FACT:
        raise Invalid(
            f"the fact has {len(line):,} characters, and at most {MAX_FACT:,} are allowed; "
            "shorten it, or save several facts"
        )
    return line


def parse_fact_id(text: str) -> int:
    """The number of `fact-12` or `12`. Raises NotFound."""
    found = FACT_ID.fullmatch(text.strip())
    if found is None:
        raise NotFound(f"there is no fact {text!r}; the id of a fact is like fact-12")
    return int(found["number"])


def describe_fact(fact: Fact, *, with_place: bool = False) -> str:
    """One line for the model. The text is a JSON string, so that it cannot look like anything but a quotation."""
    details = [iso(fact.at)[:10]]
    if fact.author != MODEL:
        details.append("written by the user")
    if with_place:
        details.append(f"scope {fact.scope}")
        details += [f"session {fact.session_id}, event {fact.seq}"] if fact.seq else []
    if fact.sources:
        details.append(f"unverified: saved with content of {', '.join(fact.sources)} in the context")
    return f"- {fact.id} ({'; '.join(details)}): {json.dumps(fact.text, ensure_ascii=False)}"
