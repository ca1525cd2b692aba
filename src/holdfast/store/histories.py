"""What clients have been shown of each session, as hashes: how one that sends its whole history is recognised.

Kept for the end of every turn, in the transaction that ends it. All of it can be made again from the logs.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from holdfast.model.event import Rewound
from holdfast.model.session import Session, standing
from holdfast.model.shown import NOTHING, Point, Shown
from holdfast.store import log
from holdfast.store.database import Transaction

BRANCHES = 50
"""How many forks with the same beginning are looked at, newest first; arbitrary."""


class Place(msgspec.Struct, frozen=True):
    """A place in a log, and what had been shown up to there."""

    session_id: str
    seq: int
    hash: str
    caller: str
    family: str


def begin(tx: Transaction, session: Session, caller: str) -> Place:
    """Keep the empty beginning of a new session, and who is matched to it without naming it."""
    place = Place(session.id, session.seq, NOTHING, caller, session.id)
    _add(tx, place, [Point(place.seq, place.hash)])
    return place


def catch_up(tx: Transaction, session: Session) -> tuple[Place, Shown]:
    """Keep every end of a turn up to the log's head; the last of them, and what was shown after it.

    What was taken back meanwhile is forgotten. A session that no client has named so far is nobody's: it is
    matched only for those who name it.
    """
    place = newest(tx, session.id) or Place(session.id, 0, NOTHING, "", session.id)
    entries = log.read(tx, session.id, first=place.seq + 1)
    back_to = min((entry.event.to_seq for entry in entries if isinstance(entry.event, Rewound)), default=place.seq)
    if back_to < place.seq:
        tx.run("histories.drop_after", session=session.id, seq=back_to)
        kept = newest(tx, session.id)
        place = kept or msgspec.structs.replace(place, seq=0, hash=NOTHING)
        entries = log.read(tx, session.id, first=place.seq + 1)
    if place.seq == 0 and entries:
        place = msgspec.structs.replace(place, seq=1)
        _add(tx, place, [Point(1, NOTHING)])
    shown = Shown(place.hash)
    for entry in standing(entries):
        shown.add(entry)
    _add(tx, place, shown.points)
    if shown.points:
        place = msgspec.structs.replace(place, seq=shown.points[-1].seq, hash=shown.hash)
    return place, shown


def newest(tx: Transaction, session_id: str) -> Place | None:
    row = tx.one("histories.newest", session=session_id)
    return None if row is None else Place(*row)  # type: ignore[arg-type] # the schema checks the types


def copy(tx: Transaction, parent_id: str, fork_id: str, *, upto: int) -> None:
    """Let a fork be matched by what it shares with its parent."""
    tx.run("histories.copy", id=fork_id, parent=parent_id, upto=upto)


def families(tx: Transaction, hash_: str, caller: str) -> tuple[str | None, str | None]:
    """The first and the last family in which the caller was shown just this; the same if there is only one.

    Nothing tells which of several is meant, and to guess would let one stranger go on with another's session.
    """
    row = tx.one("histories.families", hash=hash_, caller=caller)
    assert row is not None, "an aggregate has a row"
    return cast("str | None", row[0]), cast("str | None", row[1])


def in_family(tx: Transaction, hash_: str, caller: str, family: str) -> list[Place]:
    """Where the family was shown just this, outside the trash, newest first."""
    rows = tx.all("histories.in_family", hash=hash_, caller=caller, family=family, limit=BRANCHES)
    return [Place(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def _add(tx: Transaction, place: Place, points: Sequence[Point]) -> None:
    tx.many(
        "histories.add",
        [
            {
                "session": place.session_id,
                "seq": point.seq,
                "hash": point.hash,
                "caller": place.caller,
                "family": place.family,
            }
            for point in points
        ],
    )
