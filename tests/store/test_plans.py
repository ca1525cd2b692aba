"""Hot queries use their indexes: their cost does not grow with the store."""

from pathlib import Path

import apsw
import pytest

from holdfast.store import queries
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.connection import connect

HOT = {
    "log.lock_held": "PRIMARY KEY",
    "log.lock_held_at_turn_end": "PRIMARY KEY",
    "log.lock_unheld": "PRIMARY KEY",
    "log.lock_any": "PRIMARY KEY",
    "log.update_head": "PRIMARY KEY",
    "log.update_counts": "PRIMARY KEY",
    "log.list_range": "sqlite_autoindex_event_1",
    "log.list_after_position": "INTEGER PRIMARY KEY",
    "log.get_last_position": "",
    "log.get_at_position": "INTEGER PRIMARY KEY",
    "log.put_draft": "PRIMARY KEY",
    "log.get_draft": "PRIMARY KEY",
    "leases.take": "PRIMARY KEY",
    "leases.get_holder": "PRIMARY KEY",
    "leases.release": "PRIMARY KEY",
    "leases.release_all": "session_lease",
    "sessions.get": "PRIMARY KEY",
    "session_list.list_page": "session_activity",
    "sessions.by_prefix": "PRIMARY KEY",
    "sessions.by_title": "session_title",
    "sessions.list_ids": "PRIMARY KEY",
    "session_pruning.list_prunable": "session_trash",
    "session_forks.copy_events": "sqlite_autoindex_event_1",
    "session_pruning.erase_events": "sqlite_autoindex_event_1",
    "session_pruning.erase_aliases": "alias_session",
    "session_pruning.erase_channels": "channel_session",
    "workers.list_alive": "worker_alive",
    "workers.list_uncleared": "worker_uncleared",
    "workers.mark_cleared": "session_owner",
    "ownership.attach": "PRIMARY KEY",
    "ownership.detach": "PRIMARY KEY",
    "ownership.list_owned": "session_owner",
    "ownership.list_orphans": "session_orphan",
    "ownership.list_idle": "session_idle",
    "ownership.list_unclaimed_input": "PRIMARY KEY",
    "workers.record_heartbeat": "PRIMARY KEY",
    "processes.list_live": "process_live",
    "processes.list_by_session": "process_session",
    "processes.get": "PRIMARY KEY",
    "processes.by_prefix": "PRIMARY KEY",
    "processes.record_track": "PRIMARY KEY",
    "processes.end": "PRIMARY KEY",
    "processes.hand_over": "process_session",
    "resets.list_due": "session_resettable",
    "resets.get_skip": "PRIMARY KEY",
    "summary_chunks.get": "PRIMARY KEY",
    "summary_chunks.count": "PRIMARY KEY",
    "idempotency.find": "PRIMARY KEY",
    "idempotency.find_by_key": "idempotency_caller",
    "client_history.find_newest": "PRIMARY KEY",
    "client_history.delete_after": "PRIMARY KEY",
    "client_history.copy": "PRIMARY KEY",
    "client_history.find_families": "history_hash",
    "client_history.list_in_family": "history_hash",
    "client_history.list_of_caller": "history_hash",
    "client_history.list_by_reply": "history_reply",
    "client_history.find_nth_newest": "PRIMARY KEY",
    "client_history.list_known_in_session": "PRIMARY KEY",
    "inbox.count_repeat": "sqlite_autoindex_inbox",
    "inbox.list_heads": "inbox_open",
    "inbox.find_next": "inbox_open",
    "inbox.begin": "PRIMARY KEY",
    "inbox.mark_done": "PRIMARY KEY",
    "inbox.list_dead": "inbox_dead",
    "inbox.count_by_state": "inbox_undone",
    "outbox.list_reply_addresses": "PRIMARY KEY",
    "outbox.list_heads": "outbox_open",
    "outbox.find_next": "outbox_open",
    "outbox.begin": "PRIMARY KEY",
    "outbox.list_by_turn": "outbox_turn",
    "outbox.list_undelivered": "outbox_trouble",
    "outbox.count_by_state": "outbox_undone",
    "session_pruning.erase_outbox": "outbox_turn",
    "session_pruning.erase_addresses": "PRIMARY KEY",
    "contacts.get": "PRIMARY KEY",
    "contacts.find_by_code": "person_code",
    "schedules.list_due": "schedule_due",
    "schedules.get_next_due": "schedule_due",
    "schedules.find_running_slot": "slot_busy",
    "schedules.close_slot": "slot_running",
    "schedules.list_orphan_slots": "slot_running",
    "schedules.list_slots": "PRIMARY KEY",
    "aliases.find": "PRIMARY KEY",
    "aliases.find_alias_and_channel": "PRIMARY KEY",
    "aliases.list_by_session": "alias_session",
    "aliases.get_channel_session": "PRIMARY KEY",
    "delegations.get": "PRIMARY KEY",
    "delegations.get_by_call": "sqlite_autoindex_delegation_2",
    "delegations.list_children_of": "sqlite_autoindex_delegation_2",
    "dashboard_queries.list_costs_of": "PRIMARY KEY",
    "delegations.count_running": "sqlite_autoindex_delegation_2",
    "delegations.list_running_modes": "sqlite_autoindex_delegation_2",
    "delegations.list_to_stop": "delegation_running",
    "delegations.get_next_deadline": "delegation_running",
    "delegations.list_unclaimed_children": "delegation_running",
    "delegations.list_unclaimed_parents": "PRIMARY KEY",
    "approvals.list_unanswered_in_tree": "sqlite_autoindex_delegation_2",
    "goals.get": "PRIMARY KEY",
    "goals.list_due": "goal_active",
    "goals.list_interrupted": "session_owner",
    "goals.list_expired": "goal_open",
    "goals.get_next_deadline": "goal_open",
    "memory.list_visible": "memory_fact_current",
    "memory.find_text": "memory_fact_current",
    "memory.count_current": "memory_fact_current",
    "memory.count_of_turn": "memory_fact_call",
    "memory.get_by_call": "memory_fact_call",
    "plans.list_versions": "event_plan",
    "usage.list_events": "INTEGER PRIMARY KEY",
    "usage.find_origin": "event_origin",
    "usage.delete_settled": "PRIMARY KEY",
    "budget.sum_day": "reservation_day",
    "budget.sum_tree": "reservation_session",
    "budget.cost_of_tree": "PRIMARY KEY",
    "file_changes.next_number": "PRIMARY KEY",
    "shares.find": "sqlite_autoindex_share_2",
}
"""Each query that a turn, a list or a sweep runs, and the index it must be answered from."""

WHOLE_TABLE = ("SCAN delegation", "SCAN goal", "SCAN memory_fact", "SCAN reservation")
ELSEWHERE = ("search.", "hermes.", "copy_store.")
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
    assert not [step for step in steps if step.startswith(("SCAN session", "SCAN event")) or step in WHOLE_TABLE]


def test_a_page_of_the_list_needs_no_sort(connection: apsw.Connection) -> None:
    assert not any("TEMP B-TREE" in step for step in plan(connection, "session_list.list_page"))


def test_a_log_is_read_in_order_without_a_sort(connection: apsw.Connection) -> None:
    assert not any("TEMP B-TREE" in step for step in plan(connection, "log.list_range"))


@pytest.mark.parametrize("query", [name for name in queries.load() if not name.startswith(ELSEWHERE)])
def test_no_query_scans_all_events(connection: apsw.Connection, query: str) -> None:
    if "PRAGMA" not in queries.load()[query]:
        assert not [step for step in plan(connection, query) if step.startswith("SCAN event")]
