"""Commands that wait for a person's choice in their next chat message; at most one per person."""

from typing import cast

import msgspec

from holdfast.model.times import MINUTE
from holdfast.store.database import Transaction

CHOICE_LIFETIME = 60 * MINUTE
"""How long a command waits; arbitrary."""


class PendingChoice(msgspec.Struct, frozen=True):
    """`command` is what the person typed; `answers` are the valid choices."""

    channel: str
    person: str
    command: str
    answers: tuple[str, ...]
    at: int


def put(tx: Transaction, pending: PendingChoice) -> None:
    """Store the pending choice; it replaces the person's earlier one."""
    tx.run(
        "choices.put",
        channel=pending.channel,
        person=pending.person,
        command=pending.command,
        answers=msgspec.json.encode(pending.answers).decode("ascii"),
        at=pending.at,
    )


def get(tx: Transaction, channel: str, person: str, now: int) -> PendingChoice | None:
    """The person's pending choice."""
    row = tx.one("choices.get", channel=channel, person=person)
    if row is None:
        return None
    command, answers, at = cast("tuple[str, str, int]", row)
    if not 0 <= now - at <= CHOICE_LIFETIME:
        return None
    return PendingChoice(channel, person, command, msgspec.json.decode(answers, type=tuple[str, ...]), at)


def delete(tx: Transaction, channel: str, person: str) -> None:
    tx.run("choices.delete", channel=channel, person=person)
