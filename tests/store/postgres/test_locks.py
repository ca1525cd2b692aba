"""Which keys a write locks on PostgreSQL follows from the names of its parameters. No query may be missed."""

import re

import pytest

from holdfast.store import queries
from holdfast.store.postgres.transaction import NAMES, find_locks

CHANGES = re.compile(rb"\b(INSERT INTO|(?<!FOR )UPDATE|DELETE FROM)\b")
BY_ITSELF = {
    "activity.delete_old": "deletes rows that nothing else changes",
    "budget.lose": "one statement, which locks its row",
    "budget.raise_limit": "the transaction has locked the session",
    "budget.release": "one statement, which locks its row",
    "budget.reserve": "inserts a new row, behind `usage.get_position`",
    "budget.settle": "one statement, which locks its row",
    "copy_store.clear_last_position": "fills a store that nothing else uses",
    "copy_store.delete_rows": "fills a store that nothing else uses",
    "delegations.deliver": "the transaction has locked the parent",
    "delegations.set_delivery": "the transaction has locked the parent",
    "inbox.count_repeat": "one statement, which locks its row",
    "memory.add": "behind `memory.next_number`, which locks the key of all writers",
    "memory.replace": "behind `memory.next_number`, which locks the key of all writers",
    "platforms.reserve_inbox_numbers": "one statement, which locks its row",
    "platforms.reserve_outbox_number": "one statement, which locks its row",
    "recent_requests.delete_old": "deletes rows that nothing else changes",
    **dict.fromkeys(
        (
            "usage.add_to_day",
            "usage.add_to_pruned",
            "usage.add_to_session",
            "usage.clear_days",
            "usage.clear_sessions",
            "usage.delete_settled",
        ),
        "behind `usage.get_position`, which locks the key of all sums",
    ),
    "workers.record_heartbeat": "one statement; a heartbeat must not wait",
    "workers.register": "one statement; the worker is new",
}
"""Changes without a lock, each with the reason."""
OWN_LOCKS = ("driver", "search", "temp_schema")
"""Files of queries that the driver and the search index run themselves, with their own locks."""


def changes_rows(query: str) -> bool:
    return CHANGES.search(queries.numbered()[query][0]) is not None


def test_every_change_locks_a_key_or_needs_no_lock() -> None:
    changes = [name for name in queries.numbered() if changes_rows(name) and name.split(".")[0] not in OWN_LOCKS]
    assert len(changes) > 100
    unlocked = {name for name in changes if not find_locks(name, dict.fromkeys(queries.numbered()[name][1], "x"))}
    assert unlocked == set(BY_ITSELF)


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_a_parameter_of_a_query(name: str) -> None:
    assert any(name in parameters for _, parameters, *_ in queries.numbered().values())
