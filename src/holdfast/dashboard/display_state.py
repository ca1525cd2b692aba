"""The state of a session as its user sees it: what, if anything, they have to do. Pure, except for one read."""

import msgspec

from holdfast.model.event import TurnEnded
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log, turn_lookup

LABELS = {
    "asking": "needs you",
    "running": "running",
    "waiting": "idle",
    "interrupted": "interrupted",
    "quarantined": "quarantined",
    "failed": "failed",
    "ended": "ended",
}
"""The label of each state; also those of the filters of the list."""


class DisplayState(msgspec.Struct, frozen=True):
    """`name` selects the colour."""

    name: str
    label: str
    reason: str = ""


def display_state(session: Session, failure: str = "") -> DisplayState:
    """`failure` is why the last turn failed; empty if it did not."""
    summary = session.summary
    if session.state == "quarantined":
        return DisplayState("quarantined", LABELS["quarantined"], summary.quarantined or "")
    if session.state == "waiting" and failure:
        return DisplayState("failed", LABELS["failed"], failure)
    return DisplayState(session.state, LABELS[session.state])


def read_failure(tx: Transaction, session: Session) -> str:
    """Why the last turn of an idle session failed; empty if it did not. Reads the end of the log."""
    if session.state != "waiting" or not session.summary.turn_count:
        return ""
    seq = turn_lookup.find_newest(tx, session.id, "turn_ended")
    newest = log.read(tx, session.id, first=seq, last=seq) if seq else []
    ended = newest[0].event if newest else None
    if not isinstance(ended, TurnEnded) or ended.outcome != "failed":
        return ""
    return "" if turn_lookup.find_newest(tx, session.id, "rewound", after=seq) else ended.reason or "failed"
