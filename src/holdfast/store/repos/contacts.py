"""Contacts on messaging platforms: who is authorised, pairing requests, and per-chat preferences."""

from typing import Literal, cast

import msgspec

from holdfast.model.errors import NotFound
from holdfast.model.times import MINUTE
from holdfast.store.database import Transaction
from holdfast.store.repos.input_queue import InputMode

CODE_LIFETIME = 60 * MINUTE
"""How long a pairing code is valid."""
MAX_PAIRING_REQUESTS = 100
"""Open pairing requests per platform; further ones get no answer."""


class Person(msgspec.Struct, frozen=True):
    """A row of the person table, in the order of its columns."""

    platform: str
    person: str
    name: str
    code: str
    state: Literal["asked", "allowed"]
    at: int


def is_allowed(tx: Transaction, platform: str, person: str) -> bool:
    """Whether the owner has authorised this person."""
    found = get(tx, platform, person)
    return found is not None and found.state == "allowed"


def get(tx: Transaction, platform: str, person: str) -> Person | None:
    row = tx.one("contacts.get", platform=platform, person=person)
    return None if row is None else Person(*row)  # type: ignore[arg-type] # the schema checks the types


def request_pairing(tx: Transaction, unknown_person: Person) -> str | None:
    """Store a pairing request and return its code; None if the person has a valid one or is authorised, or at the limit."""
    found = get(tx, unknown_person.platform, unknown_person.person)
    since = unknown_person.at - CODE_LIFETIME
    if found is not None and (found.state == "allowed" or since < found.at <= unknown_person.at + CODE_LIFETIME):
        return None
    row = tx.one("contacts.count_pairing_requests", platform=unknown_person.platform, since=since)
    if row is None or cast("int", row[0]) >= MAX_PAIRING_REQUESTS:
        return None
    given = msgspec.structs.asdict(unknown_person)
    del given["state"]
    tx.run("contacts.request_pairing", **given)
    return unknown_person.code


def approve(tx: Transaction, code: str, *, at: int) -> Person:
    """Authorise the person with this pairing code. Raises NotFound for an unknown or expired code."""
    row = tx.one("contacts.find_by_code", code=code.upper())
    if row is None or abs(at - cast("int", row[5])) > CODE_LIFETIME:
        raise NotFound(f"there is no pairing code {code!r}; codes are valid for 1 hour")
    found = Person(*row)  # type: ignore[arg-type] # the schema checks the types
    allowed = tx.one("contacts.approve", platform=found.platform, person=found.person, at=at)
    assert allowed is not None, "it was just found"
    return Person(*allowed)  # type: ignore[arg-type] # the schema checks the types


def revoke(tx: Transaction, platform: str, person: str) -> None:
    """Remove a person's authorisation. Raises NotFound."""
    if tx.one("contacts.revoke", platform=platform, person=person) is None:
        raise NotFound(f"{person!r} is not paired on {platform}")


def list_all(tx: Transaction) -> list[Person]:
    return [Person(*row) for row in tx.all("contacts.list_all")]  # type: ignore[arg-type] # the schema checks the types


def get_busy_mode(tx: Transaction, channel: str) -> InputMode | None:
    """How the chat handles input during a turn, if it has chosen."""
    row = tx.one("contacts.get_busy_mode", channel=channel)
    return None if row is None else cast("InputMode", row[0])


def set_busy_mode(tx: Transaction, channel: str, mode: InputMode) -> None:
    tx.run("contacts.set_busy_mode", channel=channel, busy=mode)
