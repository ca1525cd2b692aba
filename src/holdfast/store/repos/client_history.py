"""Hashes of the transcript that a client has seen of each session, to recognise a client that sends its whole history.

There is one position per ended turn, written in the transaction that ends it. All of them can be rebuilt from the logs.
"""

import json
from collections.abc import Sequence
from typing import cast

import msgspec

from holdfast.model.client_transcript import NOTHING, ClientTranscript, TranscriptPoint
from holdfast.model.entry import Entry
from holdfast.model.event import Rewound
from holdfast.model.session import Session, standing
from holdfast.store.database import Transaction
from holdfast.store.repos import log

BRANCHES = 50
"""How many forks with the same beginning are compared, newest first; arbitrary."""


class HistoryPosition(msgspec.Struct, frozen=True):
    """A position in a log, and the hash of the transcript up to there."""

    session_id: str
    seq: int
    hash: str
    caller: str
    family: str


def begin(tx: Transaction, session: Session, caller: str) -> HistoryPosition:
    """Add the empty start of a new session. `caller` is matched to the session without naming it."""
    position = HistoryPosition(session.id, session.seq, NOTHING, caller, session.id)
    _add(tx, position, [TranscriptPoint(position.seq, position.hash)])
    return position


class HistoryEnd(msgspec.Struct, frozen=True):
    """The last position of a session, and what its log holds from there on."""

    position: HistoryPosition
    transcript: ClientTranscript
    """What was shown after the position."""
    entries: list[Entry]
    """The log from the position on, with the event at the position."""


def catch_up(tx: Transaction, session: Session, known: Sequence[Entry] = ()) -> HistoryEnd:
    """Add a position for every turn that has ended since the last one, and remove positions that a rewind took back.

    A session that no client has named yet has no caller: only requests that name it are matched to it. `known` is the
    end of the log, if the caller has it in memory; more of the log is read only if that does not suffice.
    """
    changes, end = _compare_with_log(tx, session, known)
    if changes.delete_after is not None:
        delete_after(tx, session.id, changes.delete_after)
    _add(tx, end.position, changes.points)
    return end


def read_current(tx: Transaction, session: Session) -> HistoryEnd:
    """Like `catch_up`, but writes nothing."""
    return _compare_with_log(tx, session, ())[1]


def is_current(tx: Transaction, session: Session) -> bool:
    """Whether `catch_up` would write nothing."""
    changes, _ = _compare_with_log(tx, session, ())
    return changes.delete_after is None and not changes.points


class _PositionChanges(msgspec.Struct, frozen=True):
    """What has to be deleted and added so that the positions agree with the log."""

    delete_after: int | None
    points: list[TranscriptPoint]


def _compare_with_log(tx: Transaction, session: Session, known: Sequence[Entry]) -> tuple[_PositionChanges, HistoryEnd]:
    position = _find_newest(tx, session.id, session.seq) or HistoryPosition(session.id, 0, NOTHING, "", session.id)
    entries = _read_from(tx, session, position.seq, known)
    back_to = min((entry.event.to_seq for entry in entries if isinstance(entry.event, Rewound)), default=position.seq)
    delete_after = None
    if back_to < position.seq:
        delete_after = back_to
        position = _find_newest(tx, session.id, back_to) or msgspec.structs.replace(position, seq=0, hash=NOTHING)
        entries = _read_from(tx, session, position.seq, known)
    points: list[TranscriptPoint] = []
    new = [entry for entry in entries if entry.seq > position.seq]
    if position.seq == 0 and new:
        position = msgspec.structs.replace(position, seq=1)
        points.append(TranscriptPoint(1, NOTHING))
    transcript = ClientTranscript(position.hash)
    for entry in standing(new):
        transcript.add(entry)
    points += transcript.points
    if transcript.points:
        position = msgspec.structs.replace(position, seq=transcript.points[-1].seq, hash=transcript.hash)
    tail = [entry for entry in entries if entry.seq >= position.seq]
    return _PositionChanges(delete_after, points), HistoryEnd(position, transcript, tail)


def _read_from(tx: Transaction, session: Session, first: int, known: Sequence[Entry]) -> list[Entry]:
    """The log from `first` to its end: from the known entries if they suffice."""
    if known and known[0].seq <= max(1, first) and known[-1].seq == session.seq:
        return [entry for entry in known if entry.seq >= first]
    return log.read(tx, session.id, first=first)


def _find_newest(tx: Transaction, session_id: str, upto: int) -> HistoryPosition | None:
    row = tx.one("client_history.find_newest", session=session_id, upto=upto)
    return None if row is None else HistoryPosition(*row)  # type: ignore[arg-type] # the schema checks the types


def copy(tx: Transaction, parent_id: str, fork_id: str, *, upto: int) -> None:
    """Copy the positions of the shared part of the log to a fork."""
    tx.run("client_history.copy", id=fork_id, parent=parent_id, upto=upto)


def find_families(tx: Transaction, hash_: str, caller: str) -> tuple[str | None, str | None]:
    """The first and the last family with this transcript of the caller; the same if there is only one.

    With several, it is unknown which is meant, and a guess could continue the session of another user.
    """
    row = tx.one("client_history.find_families", hash=hash_, caller=caller)
    assert row is not None, "an aggregate has a row"
    return cast("str | None", row[0]), cast("str | None", row[1])


def list_known(tx: Transaction, hashes: Sequence[str], caller: str) -> set[str]:
    """Those of these transcripts that the caller has in any session."""
    rows = tx.all("client_history.list_known", hashes=json.dumps(hashes), caller=caller)
    return {cast("str", row[0]) for row in rows}


def list_known_in_family(tx: Transaction, hashes: Sequence[str], caller: str, family: str) -> set[str]:
    """Those of these transcripts that are in the family."""
    rows = tx.all("client_history.list_known_in_family", hashes=json.dumps(hashes), caller=caller, family=family)
    return {cast("str", row[0]) for row in rows}


def list_ends_in_family(tx: Transaction, caller: str, family: str) -> set[str]:
    """The transcripts with which the sessions of the family end."""
    return {cast("str", row[0]) for row in tx.all("client_history.list_ends_in_family", caller=caller, family=family)}


def delete_after(tx: Transaction, session_id: str, seq: int) -> None:
    """Delete the positions that a rewind takes back."""
    tx.run("client_history.delete_after", session=session_id, seq=seq)


def list_in_family(tx: Transaction, hash_: str, caller: str, family: str) -> list[HistoryPosition]:
    """The positions of this transcript in the family, outside the trash, newest first."""
    rows = tx.all("client_history.list_in_family", hash=hash_, caller=caller, family=family, limit=BRANCHES)
    return [HistoryPosition(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def list_of_caller(tx: Transaction, hash_: str, caller: str) -> list[HistoryPosition]:
    """The positions of this transcript in all sessions of the caller outside the trash, newest first."""
    rows = tx.all("client_history.list_of_caller", hash=hash_, caller=caller, limit=BRANCHES)
    return [HistoryPosition(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def list_by_reply(tx: Transaction, reply: str, caller: str) -> list[HistoryPosition]:
    """The ends of the caller's sessions outside the trash whose last turn ended with this reply, newest first."""
    rows = tx.all("client_history.list_by_reply", reply=reply, caller=caller, limit=BRANCHES)
    return [HistoryPosition(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def find_turns_back(tx: Transaction, session_id: str, turns: int) -> int:
    """The event at which the newest `turns` turns begin, less one; 0 if there are not so many."""
    row = tx.one("client_history.find_nth_newest", session=session_id, back=turns)
    return 0 if row is None else cast("int", row[0])


def list_known_in_session(tx: Transaction, hashes: Sequence[str], session_id: str) -> dict[str, int]:
    """Those of these transcripts that are positions of the session, with their events."""
    rows = tx.all("client_history.list_known_in_session", hashes=json.dumps(hashes), session=session_id)
    return {cast("str", row[0]): cast("int", row[1]) for row in rows}


def _add(tx: Transaction, position: HistoryPosition, points: Sequence[TranscriptPoint]) -> None:
    if not points:
        return
    tx.many(
        "client_history.add",
        [
            {
                "session": position.session_id,
                "seq": point.seq,
                "hash": point.hash,
                "caller": position.caller,
                "family": position.family,
                "reply": point.reply,
            }
            for point in points
        ],
    )
