"""People of platforms: who may talk, strangers who have knocked, and what a chat has chosen for itself."""

from typing import Literal, cast

import msgspec

from holdfast.model.errors import NotFound
from holdfast.model.times import MINUTE
from holdfast.store.database import Transaction
from holdfast.store.inputs import Mode

CODE_LIFE = 60 * MINUTE
"""How long the code that a stranger was given lets them in."""
MAX_STRANGERS = 100
"""How many may have a code at once on a platform; more are not answered."""


class Person(msgspec.Struct, frozen=True):
    """A row of the person table, in the order of its columns."""

    platform: str
    person: str
    name: str
    code: str
    state: Literal["asked", "allowed"]
    at: int


def is_allowed(tx: Transaction, platform: str, person: str) -> bool:
    """Whether the owner has let this person in."""
    found = get(tx, platform, person)
    return found is not None and found.state == "allowed"


def get(tx: Transaction, platform: str, person: str) -> Person | None:
    row = tx.one("people.get", platform=platform, person=person)
    return None if row is None else Person(*row)  # type: ignore[arg-type] # the schema checks the types


def knock(tx: Transaction, stranger: Person) -> str | None:
    """The code by which the owner lets the stranger in; None if they have one already, or too many have knocked."""
    found = get(tx, stranger.platform, stranger.person)
    since = stranger.at - CODE_LIFE
    if found is not None and (found.state == "allowed" or found.at > since):
        return None
    row = tx.one("people.count_asked", platform=stranger.platform, since=since)
    if row is None or cast("int", row[0]) >= MAX_STRANGERS:
        return None
    given = msgspec.structs.asdict(stranger)
    del given["state"]
    tx.run("people.ask", **given)
    return stranger.code


def let_in(tx: Transaction, code: str, *, at: int) -> Person:
    """Allow the person who was given this code. Raises NotFound for one that was not given out, or too long ago."""
    row = tx.one("people.by_code", code=code.upper())
    if row is None or at - cast("int", row[5]) > CODE_LIFE:
        raise NotFound(f"nobody was given the code {code!r} within the last hour")
    found = Person(*row)  # type: ignore[arg-type] # the schema checks the types
    allowed = tx.one("people.let_in", platform=found.platform, person=found.person, at=at)
    assert allowed is not None, "it was just found"
    return Person(*allowed)  # type: ignore[arg-type] # the schema checks the types


def turn_out(tx: Transaction, platform: str, person: str) -> None:
    """Forget that a person was let in. Raises NotFound."""
    if tx.one("people.turn_out", platform=platform, person=person) is None:
        raise NotFound(f"nobody called {person!r} was let in on {platform}")


def every(tx: Transaction) -> list[Person]:
    return [Person(*row) for row in tx.all("people.all")]  # type: ignore[arg-type] # the schema checks the types


def busy(tx: Transaction, channel: str) -> Mode | None:
    """What the chat has chosen for words that come during a turn."""
    row = tx.one("people.busy", channel=channel)
    return None if row is None else cast("Mode", row[0])


def set_busy(tx: Transaction, channel: str, mode: Mode) -> None:
    tx.run("people.set_busy", channel=channel, busy=mode)
