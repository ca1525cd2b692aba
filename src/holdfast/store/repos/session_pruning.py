"""Permanent deletion of trashed sessions and all their rows."""

import msgspec

from holdfast.store.database import Transaction
from holdfast.store.spending import usage

DELETE_QUERIES = (
    "session_pruning.erase_events",
    "session_pruning.erase_draft",
    "session_pruning.erase_requests",
    "session_pruning.erase_keys",
    "session_pruning.erase_inputs",
    "session_pruning.erase_approvals",
    "session_pruning.erase_activity",
    "session_pruning.erase_approval_rules",
    "session_pruning.erase_chunks",
    "session_pruning.erase_processes",
    "session_pruning.erase_containers",
    "session_pruning.erase_delegations",
    "session_pruning.erase_file_changes",
    "session_pruning.erase_file_images",
    "session_pruning.erase_goal",
    "session_pruning.erase_reset_hold",
    "session_pruning.erase_history",
    "session_pruning.erase_outbox",
    "session_pruning.erase_addresses",
    "session_pruning.erase_shares",
    "session_pruning.erase_usage",
    "session_pruning.erase_raises",
    "session_pruning.forget_reservations",
    "session_pruning.erase_aliases",
    "session_pruning.erase_channels",
    "session_pruning.erase",
    "session_pruning.erase_words",
)


class Prunable(msgspec.Struct, frozen=True):
    id: str
    title: str | None
    trashed_at: int
    message_count: int
    preview: str


def list_prunable(tx: Transaction, *, before: int) -> list[Prunable]:
    """Sessions that `prune` would delete: in the trash since before `before`, not pinned, without a lease."""
    return [Prunable(*row) for row in tx.all("session_pruning.list_prunable", before=before)]  # type: ignore[arg-type] # the schema checks the types


def prune(tx: Transaction, session_id: str, *, before: int) -> bool:
    """Delete a session permanently with all its rows; False if it is not prunable."""
    if tx.one("session_pruning.is_prunable", id=session_id, before=before) is None:
        return False
    usage.keep_pruned(tx, session_id)
    for query in DELETE_QUERIES:
        tx.run(query, id=session_id)
    return True


def uses_directory(tx: Transaction, path: str, channel: str | None) -> bool:
    """Whether any session, also in the trash, belongs to the channel or may have been opened in that directory."""
    if channel is not None and tx.one("session_pruning.find_by_channel", channel=channel) is not None:
        return True
    return tx.one("session_pruning.find_by_opening_path", pattern=f"%{path}%") is not None
