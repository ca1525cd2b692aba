"""Proves a store: every hash of every log, every summary against its log, and the database's own checks.

Walks in short reads, so that a long check never keeps the WAL from being reused. A log only grows, so
what was its head when the check began is a fixed thing to prove, however many reads that takes. Damage is
reported, not raised: one bad session must not hide the state of the others.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import cast

import msgspec

from holdfast.model.entry import GENESIS, decode, link
from holdfast.model.errors import Corrupt
from holdfast.model.session import Summary, fold
from holdfast.store import sessions
from holdfast.store.database import Database, Transaction

CHUNK = 1_000
"""Events, or sessions, of one read: a few milliseconds."""

Progress = Callable[[int, int], None]
"""Told how many events have been proved and how many there are."""

DAMAGE = (Corrupt, UnicodeDecodeError)
"""What reading damaged bytes can raise: the second for text that is no longer UTF-8."""


def _nothing(done: int, total: int) -> None:
    pass


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, and where; without a session it is the store as a whole."""

    what: str
    session_id: str | None = None
    seq: int | None = None


class Report(msgspec.Struct):
    sessions: int = 0
    events: int = 0
    problems: list[Problem] = []

    @property
    def ok(self) -> bool:
        return not self.problems

    def add(self, walk: "Walk") -> None:
        self.sessions += 1
        self.events += walk.seq
        if walk.problem is not None:
            self.problems.append(walk.problem)


class Walk(msgspec.Struct):
    """How far the proof of one log has come."""

    session_id: str
    last: int = 0
    head: str = GENESIS
    expected: Summary | None = None
    """What the store says the log adds up to; None if that is not to be checked."""
    seq: int = 0
    hash: str = GENESIS
    summary: Summary = Summary()
    problem: Problem | None = None

    @property
    def done(self) -> bool:
        return self.problem is not None or self.seq == self.last


async def verify(database: Database, ids: Iterable[str] | None = None, on_progress: Progress = _nothing) -> Report:
    """Prove these sessions, or without any the whole store. Raises nothing that the report can say."""
    report = Report()
    try:
        if ids is not None:
            for session_id in ids:
                report.add(await _prove(database, session_id, on_progress))
            return report
        report.problems += await _check(database, integrity)
        report.problems += await _check(database, strays)
        total = await _total(database)
        async for session_id in _every(database):
            report.add(await _prove(database, session_id, _behind(report.events, total, on_progress)))
    except DAMAGE as e:
        report.problems.append(Problem(str(e)))
    return report


def verify_copy(tx: Transaction, *, summaries: bool = True, on_progress: Progress = _nothing) -> Report:
    """Prove a copy that nobody else uses, on one connection; without `summaries`, one of an older schema."""
    report = Report(problems=integrity(tx) + strays(tx))
    total = count(tx)[1]
    for session_id in every_id(tx):
        walk = begin(tx, session_id, summaries=summaries)
        while not walk.done:
            advance(tx, walk)
            on_progress(report.events + walk.seq, total)
        report.add(conclude(walk))
    return report


async def _prove(database: Database, session_id: str, on_progress: Progress) -> Walk:
    walk = Walk(session_id)
    try:
        walk = await database.read(begin, session_id)
        while not walk.done:
            await database.read(advance, walk)
            on_progress(walk.seq, walk.last)
    except DAMAGE as e:
        _fault(walk, str(e))
        return walk
    if walk.problem is not None and (await database.read(begin, session_id)).last == 0:
        return Walk(session_id)  # it was pruned meanwhile
    return conclude(walk)


def _behind(before: int, total: int, on_progress: Progress) -> Progress:
    """Tells the progress of one session as that of the whole."""
    return lambda done, _: on_progress(before + done, total)


def heads(tx: Transaction) -> list[tuple[str, int, str]]:
    """Every session with the number and the hash of its last event: two stores with the same heads hold the same logs."""
    return cast("list[tuple[str, int, str]]", tx.all("verify.heads"))


def count(tx: Transaction) -> tuple[int, int]:
    """How many sessions and events there are."""
    return cast("tuple[int, int]", tx.one("sessions.count"))


def integrity(tx: Transaction) -> list[Problem]:
    """What the database finds wrong with its own structure."""
    return [Problem(f"the database says: {row[0]}") for row in tx.all("verify.integrity") if row[0] != "ok"]


def strays(tx: Transaction) -> list[Problem]:
    """Rows that belong to nothing."""
    found = {(row[0], row[2]) for row in tx.all("verify.strays")}
    return [Problem(f"rows of the table {table} belong to nothing in {parent}") for table, parent in found]


async def _check(database: Database, check: Callable[[Transaction], list[Problem]]) -> list[Problem]:
    try:
        return await database.read(check)
    except DAMAGE as e:
        return [Problem(str(e))]


async def _total(database: Database) -> int:
    """For the progress only: a damaged table must not end the walk before it began."""
    try:
        return (await database.read(count))[1]
    except DAMAGE:
        return 0


def begin(tx: Transaction, session_id: str, *, summaries: bool = True) -> Walk:
    """Start to prove a session. One that is not there, because it was pruned meanwhile, has nothing to prove."""
    row = tx.one("verify.head", id=session_id)
    if row is None:
        return Walk(session_id)
    last, head, stored = cast("tuple[int, str, int | None]", row)
    walk = Walk(session_id, last, head, sessions.get(tx, session_id).summary if summaries else None)
    if (stored or 0) != last:
        walk.problem = Problem(f"its head says {last} events, the last one stored is {stored or 0}", session_id, last)
    return walk


def advance(tx: Transaction, walk: Walk) -> None:
    """Prove the next events of the log; the first fault ends the walk."""
    upto = min(walk.seq + CHUNK, walk.last)
    try:
        rows = tx.all("log.range", session=walk.session_id, first=walk.seq + 1, last=upto)
        for seq, kind, at, hash_, body in cast("list[tuple[int, str, int, str, str]]", rows):
            if seq != walk.seq + 1:
                return _fault(walk, f"event {walk.seq + 1} is missing; the next one stored is {seq}")
            if not (kind + body).isascii() or link(walk.hash, kind, at, body) != hash_:
                return _fault(walk, f"event {seq} is not what was written; its hash does not fit")
            walk.summary = fold(walk.summary, decode(kind, body), at)
            walk.seq, walk.hash = seq, hash_
    except DAMAGE as e:
        return _fault(walk, f"event {walk.seq + 1} or one behind it cannot be read: {e}")
    if walk.seq < upto:
        return _fault(walk, f"event {walk.seq + 1} is missing")
    return None


def _fault(walk: Walk, what: str) -> None:
    walk.problem = Problem(what, walk.session_id, walk.seq + 1)


def conclude(walk: Walk) -> Walk:
    """Compare what the log adds up to with what the store says it does."""
    if walk.problem is not None:
        return walk
    if walk.hash != walk.head:
        walk.problem = Problem("the hash of its last event is not the one its head has", walk.session_id, walk.seq)
    elif walk.expected is not None and walk.summary != walk.expected:
        wrong = [
            f"{name} is {getattr(walk.expected, name)!r}, the log says {getattr(walk.summary, name)!r}"
            for name in walk.summary.__struct_fields__
            if getattr(walk.expected, name) != getattr(walk.summary, name)
        ]
        walk.problem = Problem(f"its summary differs from its log: {'; '.join(wrong)}", walk.session_id)
    return walk


async def _every(database: Database) -> AsyncIterator[str]:
    after = ""
    while ids := await database.read(_ids, after):
        for session_id in ids:
            yield session_id
        after = ids[-1]


def every_id(tx: Transaction) -> Iterator[str]:
    """The ids of all sessions, in order of birth."""
    after = ""
    while ids := _ids(tx, after):
        yield from ids
        after = ids[-1]


def _ids(tx: Transaction, after: str) -> list[str]:
    return [cast("str", row[0]) for row in tx.all("sessions.ids", after=after, limit=CHUNK)]
