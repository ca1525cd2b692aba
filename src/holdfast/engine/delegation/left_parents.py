"""Finds the turns that wait for a child session and that no worker runs."""

from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, sessions


def list_left_parents(tx: Transaction, session_id: str) -> list[str]:
    """The sessions above a child whose open turns delegated to it, if no worker holds them; the nearest first."""
    found: list[str] = []
    for record in delegations.iterate_above(tx, session_id):
        parent = sessions.get(tx, record.parent_id)
        if parent.summary.open_turn == record.turn_id and parent.lease_worker is None:
            found.append(parent.id)
    return found
