"""Verifies a store: every hash of every log, every summary against its log, and the database's own checks.

It uses short reads, so that a long check never prevents reuse of the WAL. A log only grows, so the part up to its head
at the start of the check stays the same, however many reads that takes. Damage is reported, not raised: one damaged
session must not hide the state of the others.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import cast

import msgspec

from holdfast.model.entry import GENESIS, decode, link
from holdfast.model.errors import Corrupt
from holdfast.model.session import SessionSummary, fold
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import sessions
from holdfast.store.spending.check import find_differences

CHUNK = 1_000
"""Events, or sessions, per read: a few milliseconds."""

Progress = Callable[[int, int], None]
"""Called with the number of verified events and the total."""

DAMAGE = (Corrupt, UnicodeDecodeError)
"""Errors of reading damaged bytes; the second for text that is not UTF-8."""


def _nothing(done: int, total: int) -> None:
    pass


class VerifyProblem(msgspec.Struct, frozen=True):
    """What is wrong, and where; without a session, in the store as a whole."""

    what: str
    session_id: str | None = None
    seq: int | None = None


class VerifyReport(msgspec.Struct):
    sessions: int = 0
    events: int = 0
    problems: list[VerifyProblem] = []

    @property
    def ok(self) -> bool:
        return not self.problems

    def add(self, walk: "LogWalk") -> None:
        self.sessions += 1
        self.events += walk.seq
        if walk.problem is not None:
            self.problems.append(walk.problem)


class LogWalk(msgspec.Struct):
    """The progress of verifying one log."""

    session_id: str
    last: int = 0
    head: str = GENESIS
    expected: SessionSummary | None = None
    """The stored summary, which must equal that of the log; None to skip this check."""
    seq: int = 0
    hash: str = GENESIS
    summary: SessionSummary = SessionSummary()
    problem: VerifyProblem | None = None

    @property
    def done(self) -> bool:
        return self.problem is not None or self.seq == self.last


async def verify(
    database: Database, ids: Iterable[str] | None = None, on_progress: Progress = _nothing
) -> VerifyReport:
    """Verify these sessions, or the whole store if None. Damage is in the report, not raised."""
    report = VerifyReport()
    try:
        if ids is not None:
            for session_id in ids:
                report.add(await _prove(database, session_id, on_progress))
            return report
        report.problems += await _check(database, check_integrity)
        report.problems += await _check(database, find_dangling_rows)
        total = await _total(database)
        async for session_id in _every(database):
            report.add(await _prove(database, session_id, _behind(report.events, total, on_progress)))
        if report.ok:
            wrong = await find_differences(database)
            report.problems += [VerifyProblem(f"{one}; 'holdfast stats --rebuild' corrects it") for one in wrong]
    except DAMAGE as e:
        report.problems.append(VerifyProblem(str(e)))
    return report


def verify_copy(tx: Transaction, *, summaries: bool = True, on_progress: Progress = _nothing) -> VerifyReport:
    """Verify a copy that nothing else uses, on one connection. A copy with an older schema needs `summaries=False`."""
    report = VerifyReport(problems=check_integrity(tx) + find_dangling_rows(tx))
    total = count(tx)[1]
    for session_id in iterate_ids(tx):
        walk = begin(tx, session_id, summaries=summaries)
        while not walk.done:
            advance(tx, walk)
            on_progress(report.events + walk.seq, total)
        report.add(conclude(walk))
    return report


async def _prove(database: Database, session_id: str, on_progress: Progress) -> LogWalk:
    walk = LogWalk(session_id)
    try:
        walk = await database.read(begin, session_id)
        while not walk.done:
            await database.read(advance, walk)
            on_progress(walk.seq, walk.last)
    except DAMAGE as e:
        _fault(walk, str(e))
        return walk
    if walk.problem is not None and (await database.read(begin, session_id)).last == 0:
        return LogWalk(session_id)  # it was pruned during the check
    return conclude(walk)


def _behind(before: int, total: int, on_progress: Progress) -> Progress:
    """Reports the progress of one session as that of the store."""
    return lambda done, _: on_progress(before + done, total)


def list_heads(tx: Transaction) -> list[tuple[str, int, str]]:
    """Id, last event number and last hash of every session. Stores with the same heads contain the same logs."""
    return cast("list[tuple[str, int, str]]", tx.all("verify.list_heads"))


def count(tx: Transaction) -> tuple[int, int]:
    """The number of sessions and of events."""
    return cast("tuple[int, int]", tx.one("sessions.count"))


def check_integrity(tx: Transaction) -> list[VerifyProblem]:
    """Problems that the database finds in its own structure."""
    return [VerifyProblem(f"database check: {row[0]}") for row in tx.all("verify.check_integrity") if row[0] != "ok"]


def find_dangling_rows(tx: Transaction) -> list[VerifyProblem]:
    """Rows whose foreign key refers to a missing row."""
    found = {(row[0], row[2]) for row in tx.all("verify.list_dangling_rows")}
    return [VerifyProblem(f"rows of table {table} refer to missing rows of table {parent}") for table, parent in found]


async def _check(database: Database, check: Callable[[Transaction], list[VerifyProblem]]) -> list[VerifyProblem]:
    try:
        return await database.read(check)
    except DAMAGE as e:
        return [VerifyProblem(str(e))]


async def _total(database: Database) -> int:
    """The number of events, for the progress only: a damaged table must not stop the check before it starts."""
    try:
        return (await database.read(count))[1]
    except DAMAGE:
        return 0


def begin(tx: Transaction, session_id: str, *, summaries: bool = True) -> LogWalk:
    """Start to verify a session. A session that was pruned meanwhile has nothing to verify."""
    row = tx.one("verify.get_head", id=session_id)
    if row is None:
        return LogWalk(session_id)
    last, head, stored = cast("tuple[int, str, int | None]", row)
    walk = LogWalk(session_id, last, head, sessions.get(tx, session_id).summary if summaries else None)
    if (stored or 0) != last:
        walk.problem = VerifyProblem(
            f"its row names {last} as the last event, the last one stored is {stored or 0}", session_id, last
        )
    return walk


def advance(tx: Transaction, walk: LogWalk) -> None:
    """Verify the next events of the log; the first problem ends the walk."""
    upto = min(walk.seq + CHUNK, walk.last)
    try:
        rows = tx.all("log.list_range", session=walk.session_id, first=walk.seq + 1, last=upto)
        for seq, kind, at, hash_, body in cast("list[tuple[int, str, int, str, str]]", rows):
            if seq != walk.seq + 1:
                return _fault(walk, f"event {walk.seq + 1} is missing; the next one stored is {seq}")
            if not (kind + body).isascii() or link(walk.hash, kind, at, body) != hash_:
                return _fault(walk, f"event {seq} was changed: its hash does not match")
            walk.summary = fold(walk.summary, decode(kind, body), at)
            walk.seq, walk.hash = seq, hash_
    except DAMAGE as e:
        return _fault(walk, f"event {walk.seq + 1} or a later one cannot be read: {e}")
    if walk.seq < upto:
        return _fault(walk, f"event {walk.seq + 1} is missing")
    return None


def _fault(walk: LogWalk, what: str) -> None:
    walk.problem = VerifyProblem(what, walk.session_id, walk.seq + 1)


def conclude(walk: LogWalk) -> LogWalk:
    """Compare the hash and the summary of the log with those in the session's row."""
    if walk.problem is not None:
        return walk
    if walk.hash != walk.head:
        walk.problem = VerifyProblem(
            "the hash of its last event differs from the one in its row", walk.session_id, walk.seq
        )
    elif walk.expected is not None and walk.summary != walk.expected:
        wrong = [
            f"{name} is {getattr(walk.expected, name)!r}, the log says {getattr(walk.summary, name)!r}"
            for name in walk.summary.__struct_fields__
            if getattr(walk.expected, name) != getattr(walk.summary, name)
        ]
        walk.problem = VerifyProblem(f"its summary differs from its log: {'; '.join(wrong)}", walk.session_id)
    return walk


async def _every(database: Database) -> AsyncIterator[str]:
    after = ""
    while ids := await database.read(_ids, after):
        for session_id in ids:
            yield session_id
        after = ids[-1]


def iterate_ids(tx: Transaction) -> Iterator[str]:
    """The ids of all sessions, oldest first."""
    after = ""
    while ids := _ids(tx, after):
        yield from ids
        after = ids[-1]


def _ids(tx: Transaction, after: str) -> list[str]:
    return [cast("str", row[0]) for row in tx.all("sessions.list_ids", after=after, limit=CHUNK)]
