"""Imports a foreign session into the store: completely the first time, and later only what was added to it.

A source always gives the same events, so it can be compared with the store. The log of an imported session is the
built events, then an `imported` event that records how much of the source they cover, then what happened here.
Events are committed in batches that end with a turn: in between, readers see an idle session. An import that is
killed continues where it stopped, because the events it had stored are the first events that are built again.
"""

from collections.abc import Iterator
from itertools import chain, pairwise

import msgspec

from holdfast.interop.importing import state
from holdfast.interop.importing.facts import (
    NOT_LOGGED,
    Fact,
    ForeignSession,
    ImportedInput,
    ImportedReply,
    ImportedResult,
)
from holdfast.interop.importing.log_builder import LogBuilder, Timed
from holdfast.interop.importing.report import ImportCounts, ImportOutcome, Outcome, add_usage
from holdfast.interop.importing.state import ImportedState
from holdfast.model.entry import GENESIS, encode, link
from holdfast.model.errors import Conflict
from holdfast.model.event import KIND_OF, Ended, Event, Forked, Imported, Reopened, SessionOpened, Titled, Usage
from holdfast.model.ids import SESSION, derive
from holdfast.model.session import Session, SessionSummary, fold, title_line
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log_import, sessions
from holdfast.store.repos.log_import import StoredEvent

BATCH_EVENTS = 1_000
BATCH_BYTES = 4_000_000
"""Limits of a batch, exceeded only by a single larger turn: small enough not to block other writers for long."""
NOT_CONTINUED = {"titled", "pinned", "unpinned", "trashed", "restored", "ended", "reopened", "forked"}
"""Kinds of events after an import that do not count as continuing the session."""
UNCHANGED = "the session was not changed"


async def import_session(
    database: Database, source: ForeignSession, *, at: int, dry_run: bool = False
) -> ImportOutcome:
    """Add to the store what it lacks of this session.

    A conflict with the stored session, or a lease on it, is an outcome. Any other failure to read or save is raised;
    what was committed before stays, and the next import continues after it.
    """
    found = await database.read(state.find_import, source)
    parent_id = await database.read(state.find_parent, source)
    work = _SessionImport(database, source, found, parent_id, at=at, dry_run=dry_run)
    try:
        return await work.run()
    except Conflict as e:
        return work.outcome_of("left", str(e))


class _SessionImport:
    """The import of one foreign session."""

    def __init__(
        self,
        database: Database,
        source: ForeignSession,
        stored: ImportedState | None,
        parent_id: str | None,
        *,
        at: int,
        dry_run: bool,
    ) -> None:
        self._database, self._source, self._stored, self._parent_id = database, source, stored, parent_id
        self._now, self._dry_run = at, dry_run
        self._builder = LogBuilder(state.source_alias(source.format, source.origin))
        self._count = ImportCounts(title=source.title, usage=source.usage)
        self._session = stored.session if stored is not None else None
        self._summary = SessionSummary()
        self._hash = GENESIS
        self._batch: list[StoredEvent] = []
        self._bytes = 0
        self._is_ending = False
        """The closing events are committed in one batch: their presence shows that the import is complete."""
        self._added = 0
        self._notes: list[str] = []

    async def run(self) -> ImportOutcome:
        facts = self._count_facts()
        facts = self._skip_imported(facts)
        first = next((fact for fact in facts if not isinstance(fact, NOT_LOGGED)), None)
        if first is None and (self._stored is None or self._stored.marks):
            return self._nothing_new()
        events = self._events(first, facts)
        if not self._continue_after_mark():
            self._skip_stored(events)
        for timed in events:
            self._add_event(timed)
            if self._may_pause() and (len(self._batch) >= BATCH_EVENTS or self._bytes >= BATCH_BYTES):
                await self._flush()
        await self._flush()
        return self.outcome_of("extended" if self._stored is not None and self._stored.marks else "new")

    def _nothing_new(self) -> ImportOutcome:
        if self._stored is None:
            return self.outcome_of("empty", "it has no messages")
        return self.outcome_of("same" if self._stored.behind <= NOT_CONTINUED else "behind")

    def _may_pause(self) -> bool:
        return self._builder.is_between_turns and self._builder.messages > 0 and not self._is_ending

    def outcome_of(self, outcome: Outcome, *more: str) -> ImportOutcome:
        count = self._count
        return ImportOutcome(
            format=self._source.format,
            origin=self._source.origin,
            outcome=outcome,
            session=self._session,
            added=self._added,
            source=count.taken + count.copied + count.skipped,
            taken=count.taken,
            copied=count.copied,
            skipped=count.skipped,
            notes=(*self._source.notes, *count.notes(), *self._notes, *more),
        )

    def _count_facts(self) -> Iterator[Fact]:
        for fact in self._source.facts():
            self._count.add(fact)
            yield fact

    # Skip what is already stored.

    def _skip_imported(self, facts: Iterator[Fact]) -> Iterator[Fact]:
        """Read the source up to the end of the last import and return the rest. Raises Conflict if that part has changed."""
        stored = self._stored
        if stored is None or not stored.marks:
            return facts
        self._builder.continue_after(stored.begins_behind)
        for mark in stored.marks:
            while self._builder.digest != mark.imported.digest:
                fact = next(facts, None)
                if fact is None:
                    raise Conflict(f"the source was truncated or changed since it was imported; {UNCHANGED}")
                rest = self._skip(fact, mark.imported)
                facts = facts if rest is None else chain([rest], facts)
            self._skip_all(self._builder.close())
            self._builder.continue_after(mark.goes_on_behind)
        return facts

    def _skip(self, fact: Fact, mark: Imported) -> Fact | None:
        """Skip a fact; of a reply that was incomplete when it was imported, skip only that part and return the rest."""
        if self._builder.messages >= mark.messages and isinstance(fact, ImportedInput | ImportedReply | ImportedResult):
            raise Conflict(f"the source was changed since it was imported; {UNCHANGED}")
        if isinstance(fact, ImportedReply) and self._builder.messages == mark.messages - 1:
            for count in range(1, len(fact.parts)):
                begun = msgspec.structs.replace(fact, parts=fact.parts[:count])
                if self._builder.digest_with(begun) == mark.digest:
                    self._skip_all(self._builder.add_fact(begun))
                    return msgspec.structs.replace(fact, parts=fact.parts[count:], usage=Usage())
        self._skip_all(self._builder.add_fact(fact))
        return None

    def _skip_all(self, events: Iterator[Timed]) -> None:
        for _ in events:
            pass

    def _continue_after_mark(self) -> bool:
        """Continue at the end of the log if the session was not continued here. False if an interrupted import may be there."""
        stored = self._stored
        if stored is None:
            return True
        self._summary = stored.session.summary
        self._hash = stored.session.hash
        if not stored.marks or not stored.behind <= NOT_CONTINUED:
            self._hash = stored.hash
            return False
        self._builder.continue_after(stored.session.seq)
        return True

    def _skip_stored(self, events: Iterator[Timed]) -> None:
        """Build what an interrupted import has stored already. Raises Conflict if the log continues in another way."""
        assert self._stored is not None
        stored = self._stored.session
        seq, hash_ = self._stored.stands_at, self._hash
        for at, event in events:
            hash_, seq = link(hash_, KIND_OF[type(event)], at, encode(event)), seq + 1
            if seq == stored.seq:
                break
        if hash_ != stored.hash:
            raise Conflict(f"the source has grown, but the session was continued here since; {UNCHANGED}")
        self._hash = hash_

    # Add what is new.

    def _events(self, first: Fact | None, facts: Iterator[Fact]) -> Iterator[Timed]:
        """The events to add, from the first new fact on."""
        if self._stored is not None and self._stored.session.summary.trashed_at is not None:
            raise Conflict("the source has grown, but the session is in the trash; restore it and import again")
        if self._builder.messages == 0 and self._builder.seq == 0:
            at = self._builder.at = self._source.began_at or (first.at if first is not None else 0)
            for event in self._opening_events():
                yield self._timed(at, event)
        elif self._stored is not None and self._stored.session.summary.ended_at is not None:
            at = first.at if first is not None and first.at else self._builder.at
            yield self._timed(at, Reopened(reason="the source of the import went on"))
        for fact in chain([first] if first is not None else [], facts):
            yield from self._builder.add_fact(fact)
        self._is_ending = True
        yield from self._builder.close()
        yield from self._closing_events()

    def _timed(self, at: int, event: Event) -> Timed:
        self._builder.seq += 1
        return at, event

    def _opening_events(self) -> list[Event]:
        parent = self._source.parent
        side = self._parent_id if parent is not None and parent.is_side else None
        opened = SessionOpened(source="import", workdir=self._source.workdir, side_of=side)
        if self._parent_id is None or side is not None:
            return [opened]
        return [opened, Forked(parent_id=self._parent_id, at_seq=0, at_hash=GENESIS, source="import")]

    def _closing_events(self) -> Iterator[Timed]:
        source, builder, at = self._source, self._builder, self._builder.at
        title = title_line(self._count.title or "")
        if title and self._summary.title is None:
            yield self._timed(at, Titled(title=title, by="import"))
        if source.ended is not None:
            reason, detail, ended_at = source.ended
            yield self._timed(max(at, ended_at), Ended(reason=reason, detail=detail))
        usage = self._usage_not_logged()
        imported = Imported(
            format=source.format, origin=source.origin, messages=builder.messages, digest=builder.digest, usage=usage
        )
        yield self._timed(at, imported)

    def _usage_not_logged(self) -> Usage:
        """The total usage of the source, minus the usage that the log already records."""
        usage = add_usage(self._count.usage, self._count.reported, -1)
        for mark in self._stored.marks if self._stored is not None else ():
            usage = add_usage(usage, mark.imported.usage, -1)
        said = Usage(tokens_in=self._summary.tokens_in, tokens_out=self._summary.tokens_out)
        tokens = add_usage(self._count.usage, said, -1)
        return msgspec.structs.replace(usage, tokens_in=tokens.tokens_in, tokens_out=tokens.tokens_out)

    def _add_event(self, timed: Timed) -> None:
        at, event = timed
        kind, body = KIND_OF[type(event)], encode(event)
        self._hash = link(self._hash, kind, at, body)
        self._summary = fold(self._summary, event, at)
        self._batch.append(StoredEvent(self._builder.seq, kind, at, self._hash, body))
        self._bytes += len(body)

    async def _flush(self) -> None:
        batch, self._batch, self._bytes = self._batch, [], 0
        assert all(before.seq + 1 == line.seq for before, line in pairwise(batch)), "numbers are dense"
        if not self._dry_run:
            self._session, notes = await self._database.write(self._store, batch, self._summary)
            self._notes += [note for note in notes if note not in self._notes]
        self._added += len(batch)

    def _store(self, tx: Transaction, batch: list[StoredEvent], summary: SessionSummary) -> tuple[Session, list[str]]:
        """May run twice: changes nothing but the transaction."""
        if self._session is None:
            name = state.source_alias(self._source.format, self._source.origin)
            session_id = derive(SESSION, self._source.began_at or batch[0].at, name)
            log_import.start_import(tx, session_id, batch, summary, at=self._now)
        else:
            session_id = self._session.id
            log_import.extend_import(tx, session_id, batch, summary)
        notes = list(state.add_aliases(tx, self._source, session_id, at=self._now))
        return sessions.get(tx, session_id), notes
