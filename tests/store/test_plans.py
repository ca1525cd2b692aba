"""Hot queries use their indexes: their cost does not grow with the store."""

from pathlib import Path

import apsw
import pytest

from holdfast.store import migrate, queries
from holdfast.store.sqlite_connection import connect

HOT = {
    "log.held": "PRIMARY KEY",
    "log.unheld": "PRIMARY KEY",
    "log.beside": "PRIMARY KEY",
    "log.settle": "PRIMARY KEY",
    "log.settle_counts": "PRIMARY KEY",
    "log.range": "sqlite_autoindex_event_1",
    "log.follow": "INTEGER PRIMARY KEY",
    "log.last_position": "",
    "log.at_position": "INTEGER PRIMARY KEY",
    "log.put_draft": "PRIMARY KEY",
    "log.draft": "PRIMARY KEY",
    "leases.take": "PRIMARY KEY",
    "leases.holder": "PRIMARY KEY",
    "leases.release": "PRIMARY KEY",
    "leases.free_all": "session_lease",
    "sessions.get": "PRIMARY KEY",
    "sessions.list": "session_activity",
    "sessions.by_prefix": "PRIMARY KEY",
    "sessions.by_title": "session_title",
    "sessions.ids": "PRIMARY KEY",
    "sessions.prunable": "session_trash",
    "sessions.copy_events": "sqlite_autoindex_event_1",
    "sessions.erase_events": "sqlite_autoindex_event_1",
    "sessions.erase_aliases": "alias_session",
    "sessions.erase_channels": "channel_session",
    "workers.alive": "worker_alive",
    "workers.uncleared": "worker_uncleared",
    "workers.clear": "session_owner",
    "owners.attach": "PRIMARY KEY",
    "owners.detach": "PRIMARY KEY",
    "owners.owned": "session_owner",
    "owners.orphans": "session_orphan",
    "owners.idle": "session_idle",
    "owners.unheard": "PRIMARY KEY",
    "workers.beat": "PRIMARY KEY",
    "processes.live": "process_live",
    "processes.of_session": "process_session",
    "processes.get": "PRIMARY KEY",
    "processes.by_prefix": "PRIMARY KEY",
    "processes.see": "PRIMARY KEY",
    "processes.end": "PRIMARY KEY",
    "processes.hand_over": "process_session",
    "resets.due": "session_resettable",
    "resets.held": "PRIMARY KEY",
    "chunks.get": "PRIMARY KEY",
    "chunks.count": "PRIMARY KEY",
    "keys.find": "PRIMARY KEY",
    "keys.anywhere": "idempotency_caller",
    "histories.newest": "PRIMARY KEY",
    "histories.drop_after": "PRIMARY KEY",
    "histories.copy": "PRIMARY KEY",
    "histories.families": "history_hash",
    "histories.in_family": "history_hash",
    "inbox.repeat": "sqlite_autoindex_inbox",
    "inbox.heads": "inbox_open",
    "inbox.next": "inbox_open",
    "inbox.begin": "PRIMARY KEY",
    "inbox.settle": "PRIMARY KEY",
    "inbox.dead": "inbox_dead",
    "inbox.depths": "inbox_undone",
    "outbox.addresses": "PRIMARY KEY",
    "outbox.heads": "outbox_open",
    "outbox.next": "outbox_open",
    "outbox.begin": "PRIMARY KEY",
    "outbox.of_turn": "outbox_turn",
    "outbox.trouble": "outbox_trouble",
    "outbox.depths": "outbox_undone",
    "sessions.erase_outbox": "outbox_turn",
    "sessions.erase_addresses": "PRIMARY KEY",
    "people.get": "PRIMARY KEY",
    "people.by_code": "person_code",
    "schedules.due": "schedule_due",
    "schedules.next_due": "schedule_due",
    "schedules.running": "slot_busy",
    "schedules.close_slot": "slot_running",
    "schedules.orphans": "slot_running",
    "schedules.slots": "PRIMARY KEY",
    "aliases.find": "PRIMARY KEY",
    "aliases.of_session": "alias_session",
    "aliases.current": "PRIMARY KEY",
}
"""Each query that a turn, a list or a sweep runs, and the index it must be answered from."""

ELSEWHERE = ("search.", "hermes.", "move.")
"""Queries of the search index, which is a file of its own, of other programs, and of whole tables."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    path = Path(tmp_path_factory.mktemp("plans")) / "holdfast.db"
    path.touch()
    opened = connect(path)
    migrate.migrate(opened, path)
    return opened


def plan(connection: apsw.Connection, query: str) -> list[str]:
    class Anything(dict[str, object]):
        def __missing__(self, name: str) -> None:
            return None

    text = queries.load()[query]
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", Anything())]


@pytest.mark.parametrize(("query", "index"), HOT.items(), ids=HOT.keys())
def test_a_hot_query_is_answered_from_its_index(connection: apsw.Connection, query: str, index: str) -> None:
    steps = plan(connection, query)

    assert any(index in step for step in steps), steps
    assert not [step for step in steps if step.startswith(("SCAN session", "SCAN event"))]


def test_a_page_of_the_list_needs_no_sorting(connection: apsw.Connection) -> None:
    assert not any("TEMP B-TREE" in step for step in plan(connection, "sessions.list"))


def test_a_log_is_read_in_order_without_sorting(connection: apsw.Connection) -> None:
    assert not any("TEMP B-TREE" in step for step in plan(connection, "log.range"))


@pytest.mark.parametrize("query", [name for name in queries.load() if not name.startswith(ELSEWHERE)])
def test_no_query_walks_through_all_events(connection: apsw.Connection, query: str) -> None:
    if "PRAGMA" not in queries.load()[query]:
        assert not [step for step in plan(connection, query) if step.startswith("SCAN event")]
