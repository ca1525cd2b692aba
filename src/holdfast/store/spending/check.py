"""Checks that the sums of usage are what the log says."""

from typing import cast

from holdfast.store.database import Database, Transaction
from holdfast.store.spending import usage
from holdfast.store.spending.usage import Sums, UsageBatch, UsageRow

BATCH = 2_000


async def find_differences(database: Database) -> list[str]:
    """Sum up the log again and compare; one line for each sum that differs. Changes nothing."""
    counted: Sums = {}
    position = 0
    while True:
        target = await database.read(usage.get_position)
        while position < target:
            position = await database.read(_count_some, counted, position, target)
        stored = await database.read(_stored, position)
        if stored is not None:
            return _compare(counted, *stored)


def _count_some(tx: Transaction, counted: Sums, after: int, upto: int) -> int:
    """Add the next events to the sums; returns the position of the last one."""
    rows = tx.all("usage.list_events", after=after, upto=upto, limit=BATCH)
    batch = UsageBatch(tx)
    batch.add(rows)
    usage.merge(counted, batch.days)
    return cast("int", rows[-1][0]) if len(rows) == BATCH else upto


def _stored(tx: Transaction, position: int) -> tuple[list[UsageRow], list[UsageRow]] | None:
    """The stored sums, if they reach exactly that far; else None."""
    return (usage.list_days(tx), usage.list_pruned(tx)) if usage.get_position(tx) == position else None


def _compare(counted: Sums, stored: list[UsageRow], pruned: list[UsageRow]) -> list[str]:
    expected = dict(counted)
    usage.merge(expected, {row.key: row.sum for row in pruned})
    found = {row.key: row.sum for row in stored}
    return [
        f"the usage of {key.day}, {key.model or 'no model'}, {key.source}, {key.user or 'the local user'} is wrong"
        for key in sorted({*expected, *found}, key=lambda key: (key.day, key.model, key.source, key.user))
        if expected.get(key) != found.get(key)
    ]
